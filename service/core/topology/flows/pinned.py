"""Messages that keep to their pinned paths: what each capacity carries, and the bounds of that."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.demands import Messages
from service.core.topology.flows.network import NO_HOST, Network
from service.core.topology.flows.results import (
    Binding,
    BindingKind,
    BoundKind,
    Direction,
    FlowBound,
    Part,
)
from service.core.topology.paths import PathFinder, PhysicalPath

__all__ = ["PinnedRoutes", "comes_back", "pinned_bounds", "pinned_loads", "pinned_routes"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class PinnedRoutes:
    """The paths of messages, and the links (by number) along each; `lost` have none.

    `messages` are those that have a path.
    """

    messages: Messages
    paths: tuple[PhysicalPath, ...]
    links: tuple[tuple[int, ...], ...]
    lost: tuple[tuple[int, int], ...]

    def used(self, network: Network) -> BoolArray:
        """(E,) which links any of the paths take."""
        used = np.zeros(len(network.links), dtype=np.bool_)
        used[[link for path in self.links for link in path]] = True
        return used


def pinned_routes(network: Network, finder: PathFinder, messages: Messages) -> PinnedRoutes:
    """The pinned path of each message."""
    kept, paths, links, lost = [], [], [], []
    for (source, target), amount in zip(messages.pairs, messages.amounts, strict=True):
        path = finder.path(network.names[source], network.names[target])
        if path is None:
            lost.append((source, target))
            continue
        kept.append((source, target, amount))
        paths.append(path)
        links.append(tuple(network.link_number[link.source, link.target] for link in path.links))
    return PinnedRoutes(Messages.of(kept), tuple(paths), tuple(links), tuple(lost))


def comes_back(network: Network, finder: PathFinder, source: int, target: int) -> bool:
    """Whether the pinned path from one host to another leaves the latter and enters it again."""
    home = int(network.host[target])
    if home in (NO_HOST, int(network.host[source])):
        return False
    path = finder.path(network.names[source], network.names[target])
    hosts = [] if path is None else [int(network.host[network.number[n]]) for n in path.vertices]
    return any(here == home != after for here, after in pairwise(hosts))


def pinned_loads(network: Network, routes: PinnedRoutes) -> Mapping[int, Fraction]:
    """The bytes that each used capacity carries, in the order of first use."""
    counts: Counter[tuple[int, Fraction]] = Counter()
    for links, amount in zip(routes.links, routes.messages.amounts, strict=True):
        counts.update((int(network.resource[link]), amount) for link in links)
    loads: dict[int, Fraction] = {}
    for (resource, amount), count in counts.items():
        loads[resource] = loads.get(resource, Fraction(0)) + amount * count
    return loads


def pinned_bounds(
    network: Network, routes: PinnedRoutes, loads: Mapping[int, Fraction]
) -> Iterator[FlowBound]:
    """The bounds of each kind; none when nothing moves.

    A cut that several links cross is never tighter than the most loaded one of them, because their
    loads are given. So that link is the tightest cut, and sending everything at a steady rate that
    fills it is the best flow.
    """
    port = _port_bound(network, routes)
    if port is None:
        return
    yield port
    resource = max(loads, key=lambda one: loads[one] / Fraction(float(network.capacity[one])))
    binding = Binding(BindingKind.LINK, network.resource_name(resource))
    capacity = Fraction(float(network.capacity[resource]))
    for kind in (BoundKind.LINK, BoundKind.CUT, BoundKind.CONCURRENT_FLOW):
        yield FlowBound(kind, binding, loads[resource], capacity, (Part(resource, 1),))


def _port_bound(network: Network, routes: PinnedRoutes) -> FlowBound | None:
    """What a device sends (or gets) over all that its paths leave (or enter) it by."""
    moved: Counter[tuple[int, Direction, Fraction]] = Counter()
    resources: dict[tuple[int, Direction], dict[int, None]] = {}
    messages = routes.messages
    for links, (source, target), amount in zip(
        routes.links, messages.pairs, messages.amounts, strict=True
    ):
        for vertex, direction, link in (
            (source, Direction.OUT, links[0]),
            (target, Direction.INTO, links[-1]),
        ):
            moved[vertex, direction, amount] += 1
            resources.setdefault((vertex, direction), {})[int(network.resource[link])] = None
    totals: dict[tuple[int, Direction], Fraction] = {}
    for (vertex, direction, amount), count in moved.items():
        port = vertex, direction
        totals[port] = totals.get(port, Fraction(0)) + amount * count
    best: FlowBound | None = None
    for (vertex, direction), total in totals.items():
        parts = tuple(Part(resource, 1) for resource in resources[vertex, direction])
        capacity = sum(
            (Fraction(float(network.capacity[part.resource])) for part in parts), Fraction(0)
        )
        binding = Binding(BindingKind.DEVICE, network.names[vertex], direction)
        found = FlowBound(BoundKind.PORT, binding, total, capacity, parts)
        if best is None or found.exact_seconds > best.exact_seconds:
            best = found
    return best
