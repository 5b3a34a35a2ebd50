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
from service.core.schedules.shape import Placement as StagePlacement
from service.core.topology.bounds import transfer_lower_bound_seconds, transfer_prediction_seconds
from service.core.topology.cluster import Cluster
from service.core.topology.paths import PathFinder, PhysicalPath
from service.core.units import MAX_SECONDS, PICOSECONDS_PER_SECOND, to_picoseconds, to_seconds

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
    stage_ranks: StagePlacement,
    cluster: Cluster | None,
) -> tuple[tuple[Boundary, ...], PathCounts]:
    """Each boundary with its rank pairs and times; what the paths rest on.

    `stage_ranks` names the pipeline rank of each stage in each direction; a payload is a boundary
    in each. The ranks of `source` and `target` with equal tensor, context and data coordinates form
    pairs. A boundary takes as long as its slowest pair; it is never quicker than its slowest bound.
    Stages of one rank hand everything on at once.

    Raises `InvalidInput` with every fault: pairs without a path, given times that the physical
    path can't reach, times out of range, more than `MAX_RANK_PAIRS` pairs.
    """
    replicas = ranks.world_size // ranks.pipeline.degree
    pairs = len(payloads) * len(stage_ranks) * replicas
    if pairs > MAX_RANK_PAIRS:
        detail = f"{pairs} rank pairs over all boundaries; at most {MAX_RANK_PAIRS} are priced"
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, ("parallelism",), detail)])
    finder = None if cluster is None else _path_finder(cluster)
    counts = PathCounts()
    faults: list[Fault] = []
    boundaries = tuple(
        _local(payload, direction)
        if of_stage[payload.source] == of_stage[payload.target]
        else _boundary(
            payload,
            direction,
            list(
                zip(
                    ranks.ranks_at(of_stage[payload.source]),
                    ranks.ranks_at(of_stage[payload.target]),
                    strict=True,
                )
            ),
            placement,
            finder,
            counts,
            faults,
        )
        for payload in payloads
        for direction, of_stage in enumerate(stage_ranks)
    )
    if counts.unreachable:
        pair = counts.unreachable[0]
        more = len(counts.unreachable) - 1
        detail = (
            f"no physical path joins {pair.source_device} (rank {pair.source_rank}) and "
            f"{pair.target_device} (rank {pair.target_rank}) both ways"
        ) + (f", nor {more} more rank pairs" if more else "")
        detail += ": hosts are joined by the topology's fabric, or by links to common switches"
        faults.append(Fault(FaultCode.UNREACHABLE, ("placement",), detail))
    if faults:
        raise InvalidInput(faults)
    return boundaries, counts


def _local(payload: Payload, direction: int) -> Boundary:
    return Boundary(
        source=payload.source,
        target=payload.target,
        direction=direction,
        tensors=payload.tensors,
        forward_bytes=payload.forward_bytes,
        backward_bytes=payload.backward_bytes,
        origin=TransferOrigin.LOCAL,
        forward_picoseconds=0,
        backward_picoseconds=0,
        forward_bound_picoseconds=0,
        backward_bound_picoseconds=0,
        pairs=(),
    )


def _boundary(
    payload: Payload,
    direction: int,
    rank_pairs: Sequence[tuple[int, int]],
    placement: Sequence[Placed],
    finder: PathFinder | None,
    counts: PathCounts,
    faults: list[Fault],
) -> Boundary:
    forward_given = _given(payload.forward_seconds, payload.path, "transfer_seconds", faults)
    backward_given = _given(
        payload.backward_seconds, payload.path, "backward_transfer_seconds", faults
    )
    pairs = tuple(
        _pair(
            payload,
            (forward_given, backward_given),
            placement[one],
            placement[other],
            finder,
            counts,
        )
        for one, other in rank_pairs
    )
    if payload.forward_seconds is not None:
        origin = TransferOrigin.GIVEN
    elif finder is not None and payload.forward_bytes is not None:
        origin = TransferOrigin.PATH
    else:
        origin = TransferOrigin.ASSUMED_ZERO
    forward = _direction(
        (*payload.path, "transfer_seconds"),
        forward_given,
        [(p.forward_picoseconds, p.forward_bound_picoseconds, p.forward_path) for p in pairs],
        counts,
        faults,
    )
    backward = _direction(
        (*payload.path, "backward_transfer_seconds"),
        backward_given,
        [(p.backward_picoseconds, p.backward_bound_picoseconds, p.backward_path) for p in pairs],
        counts,
        faults,
    )
    return Boundary(
        source=payload.source,
        target=payload.target,
        direction=direction,
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


def _given(seconds: float | None, path: Path, field: str, faults: list[Fault]) -> int | None:
    """A time that the plan states, in picoseconds."""
    if seconds is None:
        return None
    try:
        return to_picoseconds(seconds, (*path, field))
    except InvalidInput as invalid:
        faults += invalid.faults
        return None


def _pair(
    payload: Payload,
    given: tuple[int | None, int | None],
    source: Placed,
    target: Placed,
    finder: PathFinder | None,
    counts: PathCounts,
) -> RankPair:
    forward = backward = None
    if finder is not None and source.device is not None and target.device is not None:
        forward = finder.path(source.device, target.device)
        backward = finder.path(target.device, source.device)
    pair = RankPair(
        source_rank=source.rank,
        target_rank=target.rank,
        source_device=source.device,
        target_device=target.device,
        forward_path=forward,
        backward_path=backward,
        forward_picoseconds=_prediction(forward, payload.forward_bytes, given[0]),
        backward_picoseconds=_prediction(backward, payload.backward_bytes, given[1]),
        forward_bound_picoseconds=_lower_bound(forward, payload.forward_bytes),
        backward_bound_picoseconds=_lower_bound(backward, payload.backward_bytes),
    )
    if finder is not None and (forward is None or backward is None):
        counts.unreachable.append(pair)
    _count(pair, payload, given, counts)
    return pair


def _count(
    pair: RankPair, payload: Payload, given: tuple[int | None, int | None], counts: PathCounts
) -> None:
    """Count what the pair's bounds, and the times taken from its paths, rest on."""
    used = [
        (path, stated is None)
        for path, message_bytes, stated in (
            (pair.forward_path, payload.forward_bytes, given[0]),
            (pair.backward_path, payload.backward_bytes, given[1]),
        )
        if path is not None and message_bytes
    ]
    counts.with_assumed_bandwidth += any(path.has_assumed_bandwidth for path, _ in used)
    counts.without_latency += any(path.links_without_latency for path, prices in used if prices)
    counts.without_effective += any(path.links_without_effective for path, prices in used if prices)


def _lower_bound(path: PhysicalPath | None, message_bytes: int | None) -> int | None:
    """Rounded as predictions are, so that rounding puts none of them below it."""
    if path is None or message_bytes is None:
        return None
    # Nothing to send is no message: not even latency is paid.
    if not message_bytes:
        return 0
    seconds = Fraction(transfer_lower_bound_seconds(path, message_bytes))
    return round(seconds * PICOSECONDS_PER_SECOND)


def _prediction(
    path: PhysicalPath | None, message_bytes: int | None, given: int | None
) -> int | None:
    """To the nearest picosecond; a short time counts as one instead of being refused."""
    if given is not None or path is None or message_bytes is None:
        return given
    if not message_bytes:
        return 0
    seconds = Fraction(transfer_prediction_seconds(path, message_bytes))
    return round(seconds * PICOSECONDS_PER_SECOND) or int(seconds > 0)


def _direction(
    where: Path,
    given: int | None,
    pairs: Sequence[tuple[int | None, int | None, PhysicalPath | None]],
    counts: PathCounts,
    faults: list[Fault],
) -> tuple[int, int]:
    """Predicted and least picoseconds of one direction: those of the slowest pair."""
    predicted = max((time for time, _, _ in pairs if time is not None), default=0)
    if predicted > MAX_SECONDS * PICOSECONDS_PER_SECOND:
        detail = (
            f"the bytes of a boundary would take {to_seconds(predicted):g} s on their path; at "
            f"most {MAX_SECONDS:g} s are counted"
        )
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("topology",), detail))
        return 0, 0
    bounds = [(bound, path) for _, bound, path in pairs if bound is not None and path is not None]
    if not bounds:
        return predicted, predicted
    if given is not None:
        firm = [item for item in bounds if not item[1].has_assumed_bandwidth]
        bound, path = max(firm, key=lambda item: item[0], default=(0, None))
        if path is not None and given < bound:
            narrowest = f", where {path.bottleneck.name} is narrowest" if path.bottleneck else ""
            detail = (
                f"{to_seconds(given)!r} s is less than the bytes take at least from {path.source} "
                f"to {path.target}: {to_seconds(bound)!r} s{narrowest}"
            )
            faults.append(Fault(FaultCode.INCONSISTENT, where, detail))
    least = max(bound for bound, _ in bounds)
    counts.given_below_assumed_bound += predicted < least
    return predicted, min(predicted, least)
