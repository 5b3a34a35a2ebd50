"""What each boundary carries, over which physical paths, and how long that takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.cuts import Cut
from service.core.plans.placement import Layout
from service.core.plans.plan import (
    Boundary,
    CrossingTensor,
    GivenStage,
    Placed,
    RankPair,
    TransferOrigin,
)
from service.core.topology.bounds import transfer_lower_bound_seconds, transfer_prediction_seconds
from service.core.topology.cluster import Cluster
from service.core.topology.paths import PathFinder, PhysicalPath
from service.core.units import PICOSECONDS_PER_SECOND, to_picoseconds

__all__ = ["MAX_RANK_PAIRS", "PathCounts", "Payload", "cut_payloads", "given_payloads", "price"]

# Rank pairs over all boundaries of one plan. Each is a line of the answer.
MAX_RANK_PAIRS = 8192

_MAX_BYTES = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Payload:
    """What stage `source` and stage `target` exchange for one microbatch, by rank pair."""

    source: int
    target: int
    tensors: tuple[CrossingTensor, ...] | None
    forward_bytes: int | None
    backward_bytes: int | None
    forward_seconds: float | None = None  # stated by the plan
    backward_seconds: float | None = None
    path: Path = ()  # where the plan states it


@dataclass(slots=True)
class PathCounts:
    """Rank pairs whose paths rest on an assumption, and boundaries with a doubtful given time."""

    without_latency: int = 0
    without_effective: int = 0
    with_assumed_bandwidth: int = 0
    given_below_assumed_bound: int = 0
    unreachable: list[RankPair] = field(default_factory=list)


def given_payloads(stages: Sequence[GivenStage], *, backward: bool) -> list[Payload]:
    """Boundaries between neighbouring stages, as the plan states them.

    Backward bytes and times default to the forward ones; without a backward they are 0.
    """
    payloads = []
    for number, stage in enumerate(stages[:-1]):
        back_bytes, back_seconds = stage.backward_boundary_bytes, stage.backward_transfer_seconds
        if back_bytes is None:
            back_bytes = stage.boundary_bytes
        if back_seconds is None:
            back_seconds = stage.transfer_seconds
        if not backward:
            back_bytes = 0
            back_seconds = None if back_seconds is None else 0.0
        payloads.append(
            Payload(
                source=number,
                target=number + 1,
                tensors=None,
                forward_bytes=stage.boundary_bytes,
                backward_bytes=back_bytes,
                forward_seconds=stage.transfer_seconds,
                backward_seconds=back_seconds,
                path=("costs", "stages", number),
            )
        )
    return payloads


def cut_payloads(cuts: Sequence[Cut]) -> list[Payload]:
    """Boundaries of a partitioned model. Raises `InvalidInput` for bytes beyond 2**53 - 1."""
    faults = []
    payloads = []
    for cut in cuts:
        payload = Payload(
            cut.source, cut.target, cut.tensors, cut.forward_bytes, cut.backward_bytes
        )
        if max(cut.forward_bytes, cut.backward_bytes) > _MAX_BYTES:
            detail = (
                f"stage {cut.source} would send stage {cut.target} more than {_MAX_BYTES} bytes "
                "for one microbatch"
            )
            faults.append(Fault(FaultCode.OUT_OF_RANGE, ("partition",), detail))
        payloads.append(payload)
    if faults:
        raise InvalidInput(faults)
    return payloads


@lru_cache(maxsize=16)
def _path_finder(cluster: Cluster) -> PathFinder:
    # A cluster compares by identity; whoever keeps one for many plans finds its paths once.
    return PathFinder(cluster)


def price(
    payloads: Sequence[Payload],
    ranks: Layout,
    placement: Sequence[Placed],
    cluster: Cluster | None,
) -> tuple[tuple[Boundary, ...], PathCounts]:
    """Each boundary with its rank pairs and times; what the paths rest on.

    The ranks of `source` and `target` with equal tensor, context and data coordinates form pairs.
    A boundary takes as long as its slowest pair; it is never quicker than its slowest bound.

    Raises `InvalidInput` with every fault: pairs without a path, given times that the physical
    path can't reach, times out of range, more than `MAX_RANK_PAIRS` pairs.
    """
    pairs = len(payloads) * (ranks.world_size // ranks.pipeline.degree)
    if pairs > MAX_RANK_PAIRS:
        detail = f"{pairs} rank pairs over all boundaries; at most {MAX_RANK_PAIRS} are priced"
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, ("parallelism",), detail)])
    finder = None if cluster is None else _path_finder(cluster)
    counts = PathCounts()
    faults: list[Fault] = []
    boundaries = tuple(
        _boundary(payload, ranks, placement, finder, counts, faults) for payload in payloads
    )
    if counts.unreachable:
        pair = counts.unreachable[0]
        more = len(counts.unreachable) - 1
        detail = (
            f"no physical path joins {pair.source_device} (rank {pair.source_rank}) and "
            f"{pair.target_device} (rank {pair.target_rank}) both ways"
        ) + (f", nor {more} more rank pairs" if more else "")
        faults.append(Fault(FaultCode.UNREACHABLE, ("placement",), detail))
    if faults:
        raise InvalidInput(faults)
    return boundaries, counts


def _boundary(
    payload: Payload,
    ranks: Layout,
    placement: Sequence[Placed],
    finder: PathFinder | None,
    counts: PathCounts,
    faults: list[Fault],
) -> Boundary:
    pairs = tuple(
        _pair(payload, placement[source], placement[target], finder, counts)
        for source, target in zip(
            ranks.ranks_at(payload.source % ranks.pipeline.degree),
            ranks.ranks_at(payload.target % ranks.pipeline.degree),
            strict=True,
        )
    )
    if payload.forward_seconds is not None:
        origin = TransferOrigin.GIVEN
    elif finder is not None and payload.forward_bytes is not None:
        origin = TransferOrigin.PATH
    else:
        origin = TransferOrigin.ASSUMED_ZERO
    forward = _direction(
        payload.path + ("transfer_seconds",) * bool(payload.path),
        payload.forward_seconds,
        [
            (p.forward_transfer_seconds, p.forward_lower_bound_seconds, p.forward_path)
            for p in pairs
        ],
        counts,
        faults,
    )
    backward = _direction(
        payload.path + ("backward_transfer_seconds",) * bool(payload.path),
        payload.backward_seconds,
        [
            (p.backward_transfer_seconds, p.backward_lower_bound_seconds, p.backward_path)
            for p in pairs
        ],
        counts,
        faults,
    )
    return Boundary(
        source=payload.source,
        target=payload.target,
        tensors=payload.tensors,
        forward_bytes=payload.forward_bytes,
        backward_bytes=payload.backward_bytes,
        origin=origin,
        forward_picoseconds=forward[0],
        backward_picoseconds=backward[0],
        forward_bound_picoseconds=forward[1],
        backward_bound_picoseconds=backward[1],
        pairs=pairs,
    )


def _pair(
    payload: Payload,
    source: Placed,
    target: Placed,
    finder: PathFinder | None,
    counts: PathCounts,
) -> RankPair:
    forward = backward = None
    if finder is not None and source.device is not None and target.device is not None:
        forward = finder.path(source.device, target.device)
        backward = finder.path(target.device, source.device)
    both = [path for path in (forward, backward) if path is not None]
    counts.without_latency += any(path.links_without_latency for path in both)
    counts.without_effective += any(path.links_without_effective for path in both)
    counts.with_assumed_bandwidth += any(path.has_assumed_bandwidth for path in both)
    pair = RankPair(
        source_rank=source.rank,
        target_rank=target.rank,
        source_device=source.device,
        target_device=target.device,
        forward_path=forward,
        backward_path=backward,
        forward_lower_bound_seconds=_lower_bound(forward, payload.forward_bytes),
        backward_lower_bound_seconds=_lower_bound(backward, payload.backward_bytes),
        forward_transfer_seconds=_first(
            payload.forward_seconds, _prediction(forward, payload.forward_bytes)
        ),
        backward_transfer_seconds=_first(
            payload.backward_seconds, _prediction(backward, payload.backward_bytes)
        ),
    )
    if finder is not None and len(both) < 2:
        counts.unreachable.append(pair)
    return pair


def _first(value: float | None, otherwise: float | None) -> float | None:
    return otherwise if value is None else value


def _lower_bound(path: PhysicalPath | None, message_bytes: int | None) -> float | None:
    if path is None or message_bytes is None:
        return None
    # Nothing to send is no message: not even latency is paid.
    return transfer_lower_bound_seconds(path, message_bytes) if message_bytes else 0.0


def _prediction(path: PhysicalPath | None, message_bytes: int | None) -> float | None:
    if path is None or message_bytes is None:
        return None
    return transfer_prediction_seconds(path, message_bytes) if message_bytes else 0.0


def _direction(
    where: Path,
    given: float | None,
    pairs: Sequence[tuple[float | None, float | None, PhysicalPath | None]],
    counts: PathCounts,
    faults: list[Fault],
) -> tuple[int, int]:
    """Predicted and least picoseconds of one direction: those of the slowest pair."""
    predicted = max((seconds for seconds, _, _ in pairs if seconds is not None), default=0.0)
    if given is None and not predicted:
        return 0, 0
    bounds = [(bound, path) for _, bound, path in pairs if bound is not None and path is not None]
    try:
        picoseconds = to_picoseconds(given, where) if given is not None else _rounded(predicted)
    except InvalidInput as invalid:
        faults += invalid.faults
        return 0, 0
    if not bounds:
        return picoseconds, picoseconds if given is not None else 0
    if given is not None:
        firm = [item for item in bounds if not item[1].has_assumed_bandwidth]
        bound, path = max(firm, key=lambda item: item[0], default=(0.0, None))
        if path is not None and picoseconds < _floor(bound):
            narrowest = f", where {path.bottleneck.name} is narrowest" if path.bottleneck else ""
            detail = (
                f"{given!r} s is less than the bytes take at least from {path.source} to "
                f"{path.target}: {bound!r} s{narrowest}"
            )
            faults.append(Fault(FaultCode.INCONSISTENT, where, detail))
    least = _floor(max(bound for bound, _ in bounds))
    counts.given_below_assumed_bound += picoseconds < least
    return picoseconds, min(picoseconds, least)


def _floor(seconds: float) -> int:
    return int(Fraction(seconds) * PICOSECONDS_PER_SECOND)


def _rounded(seconds: float) -> int:
    """Like `to_picoseconds`, but a short time counts as one picosecond instead of being refused."""
    if 0 < seconds < 1 / PICOSECONDS_PER_SECOND:
        return 1
    return to_picoseconds(seconds, ("topology",))
