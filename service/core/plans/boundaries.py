"""What each boundary carries, over which physical paths, and how long that takes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from service.core.amounts import Amount, SizeClasses, at_class, combine, largest
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.plans.given import read_seconds
from service.core.plans.payloads import MAX_BYTES, Payload
from service.core.plans.placement import Layout
from service.core.plans.plan import (
    Boundary,
    Placed,
    RankPair,
    TransferOrigin,
)
from service.core.schedules.shape import Placement as StagePlacement
from service.core.topology.bounds import transfer_lower_bound_seconds, transfer_prediction_seconds
from service.core.topology.cluster import Cluster
from service.core.topology.paths import (
    PathFinder,
    PhysicalPath,
    SearchBudget,
    path_finder,
)
from service.core.units import MAX_SECONDS, PICOSECONDS_PER_SECOND, to_seconds

__all__ = ["MAX_LINKS_SEARCHED", "MAX_PRICED_SIZES", "MAX_RANK_PAIRS", "PathCounts", "price"]

# Rank pairs over all boundaries of one plan. Each is a line of the answer.
MAX_RANK_PAIRS = 8192

# Links that finding all paths of a plan may look at: about three seconds. Pairs that are far apart
# in a large torus take that; those that are neighbours next to nothing.
MAX_LINKS_SEARCHED = 300_000_000

# Sizes of messages that differ among microbatches, over all rank pairs: each is priced twice.
MAX_PRICED_SIZES = 100_000


@dataclass(slots=True)
class PathCounts:
    """Rank pairs whose paths rest on an assumption, and boundaries with a doubtful given time.

    `budget` is what is left for searches.
    """

    without_latency: int = 0
    without_effective: int = 0
    with_assumed_bandwidth: int = 0
    given_below_assumed_bound: int = 0
    unreachable: list[RankPair] = field(default_factory=list)
    budget: SearchBudget = field(default_factory=lambda: SearchBudget(MAX_LINKS_SEARCHED))

    def add(self, other: "PathCounts") -> None:
        """Count what the paths of something else rest on too."""
        self.without_latency += other.without_latency
        self.without_effective += other.without_effective
        self.with_assumed_bandwidth += other.with_assumed_bandwidth


def price(
    payloads: Sequence[Payload],
    ranks: Layout,
    placement: Sequence[Placed],
    stage_ranks: StagePlacement,
    cluster: Cluster | None,
    sizes: SizeClasses,
) -> tuple[tuple[Boundary, ...], PathCounts]:
    """Each boundary with its rank pairs and times; what the paths rest on.

    `stage_ranks` names the pipeline rank of each stage in each direction; a payload is a boundary
    in each. The ranks of `source` and `target` with equal tensor, context and data coordinates form
    pairs. A boundary takes as long as its slowest pair; it is never quicker than its slowest bound.
    Stages of one rank hand everything on at once.

    Raises `InvalidInput` with every fault: pairs without a path, given times that the physical
    path can't reach, times out of range, more than `MAX_RANK_PAIRS` pairs, more than
    `MAX_PRICED_SIZES` sizes of their messages, more than 2**53 - 1 bytes in an iteration. Raises
    `WorkBudgetExceeded` when finding the paths looks at more than `MAX_LINKS_SEARCHED` links.
    """
    replicas = ranks.world_size // ranks.pipeline.degree
    pairs = len(payloads) * len(stage_ranks) * replicas
    if pairs > MAX_RANK_PAIRS:
        detail = f"{pairs} rank pairs over all boundaries; at most {MAX_RANK_PAIRS} are priced"
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, ("parallelism",), detail)])
    _check_sizes(payloads, sizes, len(stage_ranks), replicas)
    finder = None if cluster is None else path_finder(cluster)
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
            sizes,
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
            f"{pair.target_device} (rank {pair.target_rank})"
            + (" both ways" if any(payload.returns for payload in payloads) else "")
        ) + (f", nor {more} more rank pairs" if more else "")
        detail += ": hosts are joined by the topology's fabric, or by links to common switches"
        faults.append(Fault(FaultCode.UNREACHABLE, ("placement",), detail))
    if faults:
        raise InvalidInput(faults)
    return boundaries, counts


def _check_sizes(
    payloads: Sequence[Payload], sizes: SizeClasses, directions: int, replicas: int
) -> None:
    """Refuse more sizes than are priced, and more bytes than JSON carries exactly."""
    given = [(payload.forward_bytes, payload.backward_bytes) for payload in payloads]
    priced = (
        directions
        * replicas
        * sum(len(size) for of_payload in given for size in of_payload if isinstance(size, tuple))
    )
    if priced > MAX_PRICED_SIZES:
        detail = (
            f"{priced} sizes of messages over all boundaries and rank pairs; at most "
            f"{MAX_PRICED_SIZES} are priced: fewer microbatches that differ, or fewer ranks"
        )
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, ("workload", "microbatches"), detail)])
    sent = replicas * sum(
        sizes.spread(size, direction, directions).total
        for of_payload in given
        for size in of_payload
        if size is not None
        for direction in range(directions)
    )
    if sent > MAX_BYTES:
        detail = (
            f"{sent} bytes cross all boundaries in one iteration; at most {MAX_BYTES} are counted"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("workload", "microbatches"), detail)])


def _local(payload: Payload, direction: int) -> Boundary:
    return Boundary(
        source=payload.source,
        target=payload.target,
        direction=direction,
        tensors=payload.tensors,
        forward_bytes=payload.forward_bytes,
        backward_bytes=payload.backward_bytes,
        returns=payload.returns,
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
    sizes: SizeClasses,
    counts: PathCounts,
    faults: list[Fault],
) -> Boundary:
    there = (*payload.path, "transfer_seconds")
    back = (*payload.path, payload.backward_field)
    forward_given = read_seconds(payload.forward_seconds, there, sizes, faults)
    backward_given = read_seconds(payload.backward_seconds, back, sizes, faults)
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
        there,
        sizes,
        forward_given,
        [(p.forward_picoseconds, p.forward_bound_picoseconds, p.forward_path) for p in pairs],
        counts,
        faults,
    )
    backward = _direction(
        back,
        sizes,
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
        returns=payload.returns,
        origin=origin,
        forward_picoseconds=forward[0],
        backward_picoseconds=backward[0],
        forward_bound_picoseconds=forward[1],
        backward_bound_picoseconds=backward[1],
        pairs=pairs,
    )


def _pair(
    payload: Payload,
    given: tuple[Amount | None, Amount | None],
    source: Placed,
    target: Placed,
    finder: PathFinder | None,
    counts: PathCounts,
) -> RankPair:
    forward = backward = None
    if finder is not None and source.device is not None and target.device is not None:
        forward = finder.path(source.device, target.device, counts.budget)
        if payload.returns:
            backward = finder.path(target.device, source.device, counts.budget)
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
    if finder is not None and (forward is None or (payload.returns and backward is None)):
        counts.unreachable.append(pair)
    _count(pair, payload, given, counts)
    return pair


def _count(
    pair: RankPair, payload: Payload, given: tuple[Amount | None, Amount | None], counts: PathCounts
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


def _lower_bound(path: PhysicalPath | None, message_bytes: Amount | None) -> Amount | None:
    """Rounded as predictions are, so that rounding puts none of them below it."""
    if path is None or message_bytes is None:
        return None

    def least(size: int) -> int:
        # Nothing to send is no message: not even latency is paid.
        if not size:
            return 0
        return round(Fraction(transfer_lower_bound_seconds(path, size)) * PICOSECONDS_PER_SECOND)

    return combine(least, message_bytes)


def _prediction(
    path: PhysicalPath | None, message_bytes: Amount | None, given: Amount | None
) -> Amount | None:
    """To the nearest picosecond; a short time counts as one instead of being refused."""
    if given is not None or path is None or message_bytes is None:
        return given

    def expected(size: int) -> int:
        if not size:
            return 0
        seconds = Fraction(transfer_prediction_seconds(path, size))
        return round(seconds * PICOSECONDS_PER_SECOND) or int(seconds > 0)

    return combine(expected, message_bytes)


def _direction(
    where: Path,
    sizes: SizeClasses,
    given: Amount | None,
    pairs: Sequence[tuple[Amount | None, Amount | None, PhysicalPath | None]],
    counts: PathCounts,
    faults: list[Fault],
) -> tuple[Amount, Amount]:
    """Predicted and least picoseconds of one direction: those of the slowest pair."""
    predicted = _slowest(time for time, _, _ in pairs if time is not None)
    most = largest(predicted)
    if most > MAX_SECONDS * PICOSECONDS_PER_SECOND:
        detail = (
            f"the bytes of a boundary would take {to_seconds(most):g} s on their path; at "
            f"most {MAX_SECONDS:g} s are counted"
        )
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("topology",), detail))
        return 0, 0
    bounds = [(bound, path) for _, bound, path in pairs if bound is not None and path is not None]
    if not bounds:
        return predicted, predicted
    if given is not None:
        firm = [item for item in bounds if not item[1].has_assumed_bandwidth]
        faults += _below_bounds(where, sizes, given, firm)
    least = _slowest(bound for bound, _ in bounds)
    counts.given_below_assumed_bound += any(
        at_class(predicted, number) < at_class(least, number) for number in range(sizes.count)
    )
    return predicted, combine(min, predicted, least)


def _slowest(times: Iterable[Amount]) -> Amount:
    return combine(lambda *of_pairs: max(of_pairs), 0, *times)


def _below_bounds(
    where: Path,
    sizes: SizeClasses,
    given: Amount,
    bounds: Sequence[tuple[Amount, PhysicalPath]],
) -> Iterator[Fault]:
    """Given times that the bytes can't be moved in; of alike microbatches the first is named."""
    for number, microbatch in enumerate(sizes.first if bounds else ()):
        stated = at_class(given, number)
        bound, path = max(
            ((at_class(least, number), path) for least, path in bounds), key=lambda item: item[0]
        )
        if stated >= bound:
            continue
        narrowest = f", where {path.bottleneck.name} is narrowest" if path.bottleneck else ""
        detail = (
            f"{to_seconds(stated)!r} s is less than the bytes take at least from {path.source} "
            f"to {path.target}: {to_seconds(bound)!r} s{narrowest}"
        )
        listed = isinstance(given, tuple)
        yield Fault(FaultCode.INCONSISTENT, (*where, microbatch) if listed else where, detail)
        if not listed:
            return
