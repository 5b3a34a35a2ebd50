"""The links that several of a plan's transfers and exchanges use: who, how often, how much.

And what it adds to an iteration that what stages hand on and what experts exchange wait for each
other: the same schedule with one of them off the links, with the other, and with both.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from itertools import product

import numpy as np
import numpy.typing as npt

from service.core.amounts import Amount, combine, total
from service.core.estimates.exchange_links import exchanging_passes
from service.core.estimates.iteration import timeline_picoseconds
from service.core.estimates.link_times import check_entries, occupied_picoseconds, predicted_rate
from service.core.estimates.simulation import SimulatedPlan
from service.core.moe.exchange import LinkLoads
from service.core.plans.moe.results import ExchangePart, Pass
from service.core.plans.plan import TransferOrigin
from service.core.schedules.link_run import ready_times
from service.core.schedules.link_use import intervals_of, link_exchanges
from service.core.schedules.timeline import Timeline, simulate_transfers
from service.core.topology.cluster import Link
from service.core.topology.flows.network import Network
from service.core.topology.flows.study import flow_study

__all__ = [
    "INTERFERENCE_RUNS",
    "Interference",
    "LinkUser",
    "LinkWaits",
    "SharedLink",
    "SharedLinks",
    "exchange_users",
    "shared_links",
]

Int64Array = npt.NDArray[np.int64]

# Further simulations of a plan that `shared_links` makes.
INTERFERENCE_RUNS = 3


@dataclass(frozen=True, slots=True)
class LinkUser:
    """What uses a link: transfers from a stage to another, or exchanges of one stage.

    Transfers go from stage `source` to `target` forward, gradients from `target` to `source`
    (`backward`). Exchanges of stage `source` (and `target`) are a `part` of what its operations of
    `way` exchange. `direction` is that of the microbatches in a schedule of two. Of one microbatch
    are `times`, how many messages of rank pairs or exchanges of layers use the link, the bytes they
    put on it, and for how long it is occupied (ps, at the rate of predictions, rounded up).
    """

    source: int
    target: int
    direction: int
    backward: bool
    way: Pass | None
    part: ExchangePart | None
    times: int
    bytes: Amount
    occupied: Amount


@dataclass(frozen=True, slots=True)
class LinkWaits:
    """How long what a link serves waits for it, by what is ahead: picoseconds of an iteration.

    All of them together, so that waits of several at one time count several times, and none need be
    on the critical path. Exchanges let transfers pass, so none of these waits for one.
    """

    transfers_behind_transfers: int
    exchanges_behind_transfers: int
    exchanges_behind_exchanges: int


@dataclass(frozen=True, slots=True)
class SharedLink:
    """A capacity that transfers and exchanges use both, or transfers of several boundaries or ways,
    or exchanges of several stages.

    `link` is the first link used of it. `waits` is None in modes in which nothing queues.
    """

    link: Link
    users: tuple[LinkUser, ...]
    waits: LinkWaits | None

    @property
    def bytes(self) -> Amount:
        """Of one microbatch, all users together."""
        return total(*(user.bytes for user in self.users))

    @property
    def occupied(self) -> Amount:
        """Picoseconds for one microbatch, all users together."""
        return total(*(user.occupied for user in self.users))

    @property
    def mixed(self) -> bool:
        """Whether transfers and exchanges both use it."""
        return len({user.part is None for user in self.users}) > 1


@dataclass(frozen=True, slots=True)
class Interference:
    """An iteration in picoseconds as it is (`together`), and with less on the links.

    `transfers_only`: what experts exchange takes what it takes alone and occupies nothing.
    `exchanges_only`: transfers do. `apart`: both do, so that nothing waits for a link. None where
    an iteration is not known. Queues are first in, first out: less on a link may take longer, so
    all differences are signed.
    """

    together: Fraction | None
    transfers_only: Fraction | None
    exchanges_only: Fraction | None
    apart: Fraction | None

    @property
    def contention(self) -> Fraction | None:
        """What all waiting for links adds."""
        return _less(self.together, self.apart)

    @property
    def among_transfers(self) -> Fraction | None:
        """What it adds that transfers wait for each other."""
        return _less(self.transfers_only, self.apart)

    @property
    def among_exchanges(self) -> Fraction | None:
        """What it adds that exchanges of stages wait for each other."""
        return _less(self.exchanges_only, self.apart)

    @property
    def between(self) -> Fraction | None:
        """What it adds beyond these that transfers and exchanges wait for each other."""
        parts = self.contention, self.among_transfers, self.among_exchanges
        if None in parts:
            return None
        contention, transfers, exchanges = (part or Fraction(0) for part in parts)
        return contention - transfers - exchanges


@dataclass(frozen=True, slots=True)
class SharedLinks:
    """Those of a plan, in the order of the links of its paths; `interference` in `link` mode."""

    links: tuple[SharedLink, ...]
    interference: Interference | None


def shared_links(simulated: SimulatedPlan) -> SharedLinks:
    """Who shares which links of a plan, and what that adds to an iteration.

    `INTERFERENCE_RUNS` further simulations in link mode where experts exchange anything.
    """
    users: dict[str, tuple[Link, list[LinkUser]]] = {}
    for link, user in (*_transfers(simulated), *exchange_users(simulated)):
        users.setdefault(link.resource, (link, []))[1].append(user)
    shared = {name: found for name, found in users.items() if _is_shared(found[1])}
    waits = _waits(simulated, shared)
    links = tuple(
        SharedLink(link, tuple(of_link), waits.get(name))
        for name, (link, of_link) in shared.items()
    )
    return SharedLinks(links, _interference(simulated.timeline))


def _less(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    return None if one is None or other is None else one - other


def _is_shared(users: Iterable[LinkUser]) -> bool:
    """Whether users differ in more than the pass or the part of one stage's exchanges."""
    apart = {
        (user.source, user.target, user.backward) if user.part is None else user.source
        for user in users
    }
    return len(apart) > 1


def _transfers(simulated: SimulatedPlan) -> Iterator[tuple[Link, LinkUser]]:
    """By boundary, way and link; those whose time the plan states use none."""
    for boundary in simulated.resolved.boundaries:
        for backward in (False, True):
            size = boundary.backward_bytes if backward else boundary.forward_bytes
            if not size or boundary.origin is not TransferOrigin.PATH:
                continue
            if backward and not boundary.returns:
                continue
            found: dict[str, list[Link]] = {}
            for pair in boundary.pairs:
                path = pair.backward_path if backward else pair.forward_path
                for link in () if path is None else path.links:
                    found.setdefault(link.resource, []).append(link)
            for links in found.values():
                rates = [predicted_rate(link) for link in links]
                yield (
                    links[0],
                    LinkUser(
                        source=boundary.source,
                        target=boundary.target,
                        direction=boundary.direction,
                        backward=backward,
                        way=None,
                        part=None,
                        times=len(links),
                        bytes=combine(partial(_together, rates), size),
                        occupied=combine(partial(_occupied, rates), size),
                    ),
                )


def _together(rates: Sequence[float], size: int) -> int:
    return size * len(rates)


def _occupied(rates: Sequence[float], size: int) -> int:
    return occupied_picoseconds((size, rate) for rate in rates)


def exchange_users(simulated: SimulatedPlan) -> Iterator[tuple[Link, LinkUser]]:
    """What exchanges use which link, by stage, pass, part and link; the first link of a capacity.

    Raises `WorkBudgetExceeded` as `check_entries`.
    """
    resolved, moe = simulated.resolved, simulated.resolved.moe
    if moe is None or resolved.cluster is None:
        return
    network = flow_study(resolved.cluster).network
    share = Fraction(moe.inputs.settings.exchange_efficiency)
    passes = exchanging_passes(resolved.plan, simulated.timeline.program.recompute)
    entries = 0
    for stage in resolved.stages:
        for direction, home in enumerate(stage.ranks):
            for way, part in product(passes, ExchangePart):
                of_layers = [
                    [
                        moe.exchange_loads(number, size_class, way, part, home)
                        for size_class in range(resolved.sizes.count)
                    ]
                    for number in moe.stages[stage.stage].layers
                ]
                for link, times, by_class in _by_link(network, of_layers):
                    entries += len(by_class)
                    check_entries(entries)
                    yield (
                        link,
                        LinkUser(
                            source=stage.stage,
                            target=stage.stage,
                            direction=direction,
                            backward=way is Pass.BACKWARD,
                            way=way,
                            part=part,
                            times=times,
                            bytes=_amount([sum(size for size, _ in one) for one in by_class]),
                            occupied=_amount(
                                [occupied_picoseconds(one, share) for one in by_class]
                            ),
                        ),
                    )


def _amount(numbers: Sequence[int]) -> Amount:
    return numbers[0] if len(set(numbers)) == 1 else tuple(numbers)


def _by_link(
    network: Network, of_layers: Sequence[Sequence[LinkLoads | None]]
) -> Iterator[tuple[Link, int, list[list[tuple[int, float]]]]]:
    """Each capacity, how many of the layers use it, and for each class bytes with their rates."""
    used = [
        np.unique(network.resource[np.concatenate(links)])
        for of_layer in of_layers
        if (links := [loads.links for loads in of_layer if loads is not None])
    ]
    if not used:
        return
    resources, times = np.unique(np.concatenate(used), return_counts=True)
    place = {resource: number for number, resource in enumerate(resources.tolist())}
    classes = len(of_layers[0])
    found: list[list[list[tuple[int, float]]]] = [[[] for _ in range(classes)] for _ in place]
    for number in range(classes):
        of_class = [one for of_layer in of_layers if (one := of_layer[number]) is not None]
        if not of_class:
            continue
        summed = reduce(LinkLoads.plus, of_class)
        columns = (network.resource[summed.links], summed.bytes, network.effective[summed.links])
        for resource, size, rate in zip(*(column.tolist() for column in columns), strict=True):
            found[place[resource]][number].append((size, rate))
    for resource, count, by_class in zip(resources.tolist(), times.tolist(), found, strict=True):
        yield network.links[int(network.representative[resource])], count, by_class


def _waits(simulated: SimulatedPlan, names: Iterable[str]) -> dict[str, LinkWaits]:
    """Of each of these capacities; empty in modes in which nothing queues."""
    timeline, carried = simulated.timeline, simulated.timeline.links
    if carried is None:
        return {}
    every = np.zeros(len(carried.kinds), dtype=np.bool_)
    every[: carried.messages] = True
    messages, own = intervals_of(timeline, every), link_exchanges(timeline)
    ready = ready_times(timeline.program, timeline.run, messages.bundle)
    ends = np.arange(len(simulated.links) + 1)
    of_messages, of_own, of_pieces = (
        columns.searchsorted(ends) for columns in (messages.link, own.link, own.pieces.link)
    )
    number = {link.resource: index for index, link in enumerate(simulated.links)}
    found = {}
    for name in names:
        if name not in number:
            continue
        link = number[name]
        mine, exchanges, pieces = (
            slice(*bounds[link : link + 2]) for bounds in (of_messages, of_own, of_pieces)
        )
        waited = own.done[exchanges] - own.ready[exchanges] - own.occupied[exchanges]
        served = _served_in(
            own.pieces.start[pieces],
            own.pieces.end[pieces],
            own.ready[exchanges],
            own.done[exchanges],
        )
        behind_exchanges = int((served - own.occupied[exchanges]).sum())
        found[name] = LinkWaits(
            transfers_behind_transfers=int((messages.start[mine] - ready[mine]).sum()),
            exchanges_behind_transfers=int(waited.sum()) - behind_exchanges,
            exchanges_behind_exchanges=behind_exchanges,
        )
    return found


def _served_in(
    start: Int64Array, end: Int64Array, first: Int64Array, last: Int64Array
) -> Int64Array:
    """How much of intervals that ascend and do not overlap lies between `first` and `last`."""
    before = np.concatenate(([0], np.cumsum(end - start)))

    def until(time: Int64Array) -> Int64Array:
        at = start.searchsorted(time, side="right")
        begun = np.where(at > 0, at - 1, 0)
        part = np.clip(time - start[begun], 0, (end - start)[begun]) if len(start) else 0
        return np.asarray(np.where(at > 0, before[begun] + part, 0), dtype=np.int64)

    return until(last) - until(first)


def _interference(timeline: Timeline) -> Interference | None:
    if timeline.links is None or not timeline.links.own:
        return None
    transfers = timeline.transfers
    transfers_only, exchanges_only, apart = (
        timeline_picoseconds(simulate_transfers(timeline.program, timeline.times, one))
        for one in (
            transfers.without_exchanges(),
            transfers.without_transfers(),
            transfers.without_contention(),
        )
    )
    return Interference(timeline_picoseconds(timeline), transfers_only, exchanges_only, apart)
