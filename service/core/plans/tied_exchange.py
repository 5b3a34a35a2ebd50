"""The copies of tied weights of a plan, and what adding up their gradients takes on its paths.

Copies of a weight get the same gradient by an all-reduce among the ranks that hold them, one for
each tensor, context and data coordinate, once an iteration after the last backward.

Lower bound, of any algorithm that sends over the pinned paths of the ranks of a group: of S bytes
each rank has to send S at least, as the others know nothing of its own share, and to get S back.
So it takes no less than S over what its paths out (or in) offer together, and the floor of the
quickest of them. Two ranks have one path each way, which carries S; there the links that several
groups share bound all of them together.

Prediction: a ring of k ranks in 2 (k - 1) steps, each of S / k bytes to the next rank, all groups
at once: the bytes of all over the effective rate of the busiest link of the group, and the greatest
latency of the group's paths in each step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.models.graph import Model, ModelWeight
from service.core.plans.boundaries import MAX_RANK_PAIRS, PathCounts
from service.core.plans.payloads import MAX_BYTES
from service.core.plans.placement import Layout
from service.core.plans.plan import Placed, Plan
from service.core.plans.schedule import has_backward
from service.core.plans.tied import CopyRanks, TiedCopies
from service.core.schedules.shape import Placement as StagePlacement
from service.core.topology.cluster import Cluster, Link
from service.core.topology.paths import PathFinder, PhysicalPath, path_finder
from service.core.units import MAX_SECONDS, PICOSECONDS_PER_SECOND, to_seconds

__all__ = ["PricedCopies", "tied_copies"]

_Paths = dict[tuple[int, int], PhysicalPath]


@dataclass(frozen=True, slots=True)
class PricedCopies:
    """The copies of all tied weights, and what the paths of their exchanges rest on."""

    copies: tuple[TiedCopies, ...]
    counts: PathCounts


def tied_copies(
    plan: Plan,
    model: Model,
    stage_of_layer: Sequence[int],
    ranks: Layout,
    placement: Sequence[Placed],
    stage_ranks: StagePlacement,
    cluster: Cluster | None,
) -> PricedCopies:
    """The weights that stand on several stages, by the stages that hold them, in model order.

    `stage_ranks` names the pipeline rank of each stage in each direction. Each rank that a weight
    is spread over holds an equal share of it, rounded up. Weights and gradients have the types that
    the plan's training gives them, and those of the model where it has none.

    Raises `InvalidInput` with every fault: ranks without a path, more than `MAX_RANK_PAIRS` pairs,
    more than 2**53 - 1 bytes, times out of range; and `WorkBudgetExceeded` as `price` does.
    """
    together: dict[tuple[int, ...], list[ModelWeight]] = {}
    for weight in model.weights:
        stages = weight.stages(stage_of_layer)
        if len(stages) > 1:
            together.setdefault(stages, []).append(weight)
    homes = {
        stages: tuple(sorted({way[stage] for way in stage_ranks for stage in stages}))
        for stages in together
    }
    replicas = ranks.world_size // ranks.pipeline.degree
    pairs = replicas * sum(len(home) * (len(home) - 1) // 2 for home in homes.values())
    if pairs > MAX_RANK_PAIRS:
        detail = (
            f"{pairs} rank pairs among the copies of tied weights; at most {MAX_RANK_PAIRS} are "
            "priced: let fewer stages hold them"
        )
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, ("partition",), detail)])
    pricing = _Pricing(plan, placement, None if cluster is None else path_finder(cluster))
    copies = tuple(
        pricing.price(
            stages,
            weights,
            homes[stages],
            list(zip(*(ranks.ranks_at(home) for home in homes[stages]), strict=True)),
        )
        for stages, weights in together.items()
    )
    faults = pricing.every_fault()
    if faults:
        raise InvalidInput(faults)
    return PricedCopies(copies, pricing.counts)


class _Pricing:
    """Prices the exchanges of one plan and keeps what is wrong with them."""

    def __init__(self, plan: Plan, placement: Sequence[Placed], finder: PathFinder | None) -> None:
        self.counts = PathCounts()
        self._plan = plan
        self._placement = placement
        self._finder = finder
        self._faults: list[Fault] = []
        self._unreachable: list[tuple[str, str]] = []

    def every_fault(self) -> list[Fault]:
        """All that was found; pairs without a path are told by the first."""
        if not self._unreachable:
            return self._faults
        source, target = self._unreachable[0]
        more = len(self._unreachable) - 1
        detail = (
            f"no physical path leads from {source} to {target}, which hold copies of one weight"
        )
        if more:
            detail += f", nor for {more} more such pairs"
        return [*self._faults, Fault(FaultCode.UNREACHABLE, ("placement",), detail)]

    def price(
        self,
        stages: tuple[int, ...],
        weights: Sequence[ModelWeight],
        homes: tuple[int, ...],
        groups: Sequence[tuple[int, ...]],
    ) -> TiedCopies:
        """One set of weights that are exchanged together."""
        training = self._plan.training
        degrees = self._plan.degrees
        shares = [degrees.share(weight.count, weight.split) for weight in weights]
        held = gradient = 0
        for share, weight in zip(shares, weights, strict=True):
            own = summed = weight.dtype
            if training is not None:
                own, summed = training.weights(weight.dtype), training.gradients(weight.dtype)
            held += share * own.bytes_per_element
            gradient += share * summed.bytes_per_element
        if max(held, gradient) > MAX_BYTES:
            most = max(held, gradient)
            detail = f"a copy of tied weights has {most} bytes on a rank; at most {MAX_BYTES}"
            self._faults.append(Fault(FaultCode.OUT_OF_RANGE, ("partition",), detail))
            held = gradient = 0
        if not has_backward(self._plan):
            gradient = 0
        priced: list[CopyRanks] = []
        bound = time = None
        if len(homes) > 1:
            priced, bound, time = self._groups(groups, gradient)
        elif gradient and self._finder is not None:
            bound = time = 0
        return TiedCopies(
            weights=tuple(weight.name for weight in weights),
            stages=stages,
            pipeline_ranks=homes,
            parameter_count=sum(weight.count for weight in weights),
            rank_parameter_count=sum(shares),
            rank_parameter_bytes=held,
            rank_gradient_bytes=gradient,
            groups=tuple(priced),
            bound_picoseconds=bound,
            picoseconds=time,
        )

    def _groups(
        self, groups: Sequence[tuple[int, ...]], message_bytes: int
    ) -> tuple[list[CopyRanks], int | None, int | None]:
        """Each group by itself, and bound and prediction of all of them."""
        paths = [self._paths(group) if message_bytes else None for group in groups]
        loads: dict[str, Fraction] = {}
        for group, found in zip(groups, paths, strict=True):
            size = len(group)
            for path in _ring(group, found):
                for link in path.links:
                    sent = Fraction(2 * (size - 1) * message_bytes, size)
                    loads[link.resource] = loads.get(link.resource, Fraction(0)) + sent
        priced = [
            self._group(group, found, message_bytes, loads)
            for group, found in zip(groups, paths, strict=True)
        ]
        bounds = [one.bound_picoseconds for one in priced if one.bound_picoseconds is not None]
        times = [one.picoseconds for one in priced if one.picoseconds is not None]
        if not bounds or not times:
            return priced, None, None
        bound, time = max(bounds), max(times)
        if len(groups[0]) == 2:
            used = {
                link.resource: link
                for group, found in zip(groups, paths, strict=True)
                for path in _ring(group, found)
                for link in path.links
            }
            over = (loads[name] / _rate(link) for name, link in used.items())
            bound = max(bound, *(round(seconds * PICOSECONDS_PER_SECOND) for seconds in over))
        if time > MAX_SECONDS * PICOSECONDS_PER_SECOND:
            detail = (
                f"the copies of tied weights would take {to_seconds(time):g} s to exchange their "
                f"gradients; at most {MAX_SECONDS:g} s are counted"
            )
            self._faults.append(Fault(FaultCode.OUT_OF_RANGE, ("topology",), detail))
        return priced, bound, time

    def _paths(self, group: tuple[int, ...]) -> _Paths | None:
        """The path of each ordered pair; None without a topology, or where any has none."""
        if self._finder is None:
            return None
        paths: _Paths = {}
        for source, target in permutations(group, 2):
            ends = self._placement[source].device, self._placement[target].device
            if ends[0] is None or ends[1] is None:
                return None
            path = self._finder.path(ends[0], ends[1], self.counts.budget)
            if path is None:
                self._unreachable.append((ends[0], ends[1]))
            else:
                paths[source, target] = path
        return paths if len(paths) == len(group) * (len(group) - 1) else None

    def _group(
        self,
        group: tuple[int, ...],
        paths: _Paths | None,
        message_bytes: int,
        loads: dict[str, Fraction],
    ) -> CopyRanks:
        ring = _ring(group, paths)
        bound = time = None
        if paths is not None:
            bound = round(_lower_bound(group, paths, message_bytes) * PICOSECONDS_PER_SECOND)
            time = round(_ring_seconds(ring, loads) * PICOSECONDS_PER_SECOND)
            self.counts.with_assumed_bandwidth += any(p.has_assumed_bandwidth for p in ring)
            self.counts.without_latency += any(path.links_without_latency for path in ring)
            self.counts.without_effective += any(path.links_without_effective for path in ring)
        return CopyRanks(
            ranks=group,
            devices=tuple(self._placement[rank].device for rank in group),
            paths=tuple(ring),
            bound_picoseconds=bound,
            picoseconds=time,
        )


def _ring(group: tuple[int, ...], paths: _Paths | None) -> list[PhysicalPath]:
    """From each rank to the next, and from the last to the first."""
    if paths is None:
        return []
    return [paths[pair] for pair in zip(group, (*group[1:], group[0]), strict=True)]


def _lower_bound(group: tuple[int, ...], paths: _Paths, message_bytes: int) -> Fraction:
    """The most that any rank needs to send its share, or to get the sum."""
    needed = Fraction(0)
    for rank in group:
        out = [path for (source, _), path in paths.items() if source == rank]
        into = [path for (_, target), path in paths.items() if target == rank]
        for ways in (out, into):
            floor = min(Fraction(path.latency_floor_seconds) for path in ways)
            needed = max(needed, floor + message_bytes / _joint_rate(ways))
    return needed


def _joint_rate(ways: Sequence[PhysicalPath]) -> Fraction:
    """What paths out of one device, or into it, offer together: no more than all of them alone,
    and no more than any link that all of them take.
    """
    together = sum((Fraction(path.bandwidth_bytes_per_second or 0) for path in ways), Fraction(0))
    links = {link.resource: link for path in ways for link in path.links}
    common = set(links)
    for path in ways:
        common &= {link.resource for link in path.links}
    return min([together, *(_rate(links[name]) for name in common)])


def _ring_seconds(ring: Sequence[PhysicalPath], loads: dict[str, Fraction]) -> Fraction:
    latency = max(Fraction(path.latency_seconds) for path in ring)
    busiest = max(loads[link.resource] / _effective(link) for path in ring for link in path.links)
    return 2 * (len(ring) - 1) * latency + busiest


def _rate(link: Link) -> Fraction:
    return Fraction(link.bandwidth_bytes_per_second)


def _effective(link: Link) -> Fraction:
    return Fraction(link.effective_bytes_per_second or link.bandwidth_bytes_per_second)
