"""Uniform demands on a symmetric network, with one of each kind instead of all.

An optimal flow can be averaged over the symmetries of network and demand, and is then the same for
all vertices and links of an orbit. So the flow of one root stands for those of its orbit, and is
itself the same on each orbit of the symmetries that leave the root where it is: a linear program on
orbits has the same optimum as the whole one, and equal lengths on each orbit are optimal lengths.
"""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.network import Network
from service.core.topology.flows.problems import Problem
from service.core.topology.flows.routes import Commodity, Routes, trimmed
from service.core.topology.flows.symmetry import Symmetry

__all__ = ["MAX_COLLAPSED_LINKS", "Collapse"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


# Links that all problems of one collapse look at, before what no route uses is left out: about
# fifteen thousand a second. Devices without symmetries have a problem each, large as the network.
MAX_COLLAPSED_LINKS = 60_000


class Collapse:
    """Problems on the orbits of the symmetries of a network, which keep a set of devices.

    All of them together look at `MAX_COLLAPSED_LINKS` links at most; what would be more is None.
    """

    def __init__(
        self, network: Network, routes: Routes, symmetry: Symmetry, devices: Int32Array
    ) -> None:
        self._network, self._routes, self._symmetry = network, routes, symmetry
        self._devices = devices
        self._is_device = np.zeros(network.vertex_count, dtype=np.bool_)
        self._is_device[devices] = True
        self._links_left = MAX_COLLAPSED_LINKS

    def exchange(self, pair_bytes: Fraction, largest: int) -> Problem | None:
        """Each device sends `pair_bytes` to each other one, all at once.

        None as soon as the problem is found to be larger than `largest`.
        """
        size = 0
        kinds = _Kinds(self._network, self._symmetry, ())
        commodities = []
        for root, weight in self.kinds_of_devices():
            shares = {other: count * pair_bytes for other, count in self.others(root).items()}
            commodity = self._commodity(kinds, root, shares, weight=weight)
            if commodity is None:
                return None
            commodities.append(commodity)
            size += commodity.size
            if size > largest:
                return None
        return kinds.problem(commodities)

    def alone(self, root: int, shares: Mapping[int, Fraction], *, inward: bool) -> Problem | None:
        """What one device sends to others, or gets from them (`inward`), and nothing else.

        `shares` has the bytes of each kind of others together, by the device that stands for it.
        """
        return self._alone((root,), shares, inward=inward)

    def between(self, root: int, other: int, amount: Fraction, *, inward: bool) -> Problem | None:
        """What one device sends to one other, or gets from it (`inward`), and nothing else."""
        return self._alone((root, other), {other: amount}, inward=inward)

    def kinds_of_devices(self) -> list[tuple[int, int]]:
        """One device of each kind, and how many there are of it."""
        first = [vertex for vertex in self._symmetry.orbits() if self._is_device[vertex]]
        return [(device, self._symmetry.canonical(device)[1]) for device in first]

    def others(self, root: int) -> Mapping[int, int]:
        """One device of each kind as seen from `root`, which is none, and how many there are."""
        canonical = self._symmetry.canonical
        alone = canonical(root)[1]
        return {
            other: canonical(root, other)[1] // alone
            for other in self._symmetry.orbits(root)
            if self._is_device[other] and other != root
        }

    def _alone(
        self, fixed: tuple[int, ...], shares: Mapping[int, Fraction], *, inward: bool
    ) -> Problem | None:
        kinds = _Kinds(self._network, self._symmetry, fixed)
        commodity = self._commodity(kinds, fixed[0], shares, fixed, inward=inward)
        return None if commodity is None else kinds.problem([commodity])

    def _commodity(
        self,
        kinds: "_Kinds",
        root: int,
        shares: Mapping[int, Fraction],
        fixed: tuple[int, ...] | None = None,
        *,
        inward: bool = False,
        weight: int = 1,
    ) -> Commodity | None:
        """What one root sends, on the orbits of the symmetries that leave `fixed` where it is."""
        network, symmetry = self._network, self._symmetry
        fixed = (root,) if fixed is None else fixed
        alone = symmetry.canonical(*fixed)[1]
        moved: dict[int, int] = {}

        def canonical(vertex: int) -> int:
            if vertex not in moved:
                moved[vertex] = symmetry.canonical(*fixed, vertex)[0][-1]
            return moved[vertex]

        terminals = np.array(list(shares), dtype=np.int32)
        home, hosts = network.host[[root]], np.unique(network.host[self._devices])
        usable = self._routes.may_use(hosts, home) if inward else self._routes.may_use(home, hosts)
        # The links that leave canonical vertices, each of which stands for its orbit.
        tails = symmetry.orbits(*fixed)
        links = [link for tail in tails for link in network.leaving(tail) if usable[link]]
        self._links_left -= len(links)
        if self._links_left < 0:
            return None
        ends = [(int(network.tail[link]), int(network.head[link])) for link in links]
        tail, head, resource = self._routes.arcs(
            np.array(links, dtype=np.int64),
            np.array([root], dtype=np.int32) if inward else terminals,
            np.array([canonical(end) for _, end in ends], dtype=np.int32),
            np.array([kinds.of(link) for link in links], dtype=np.int32),
        )
        single = np.ones(len(tail), dtype=np.bool_)
        single[: len(links)] = [symmetry.canonical(*fixed, *pair)[1] == alone for pair in ends]
        start, sinks = self._routes.ends(root, terminals, inward=inward)
        return trimmed(
            tail,
            head,
            resource,
            start,
            sinks,
            list(shares.values()),
            inward=inward,
            weight=weight,
            single=single,
        )


class _Kinds:
    """Numbers for the kinds of capacities under the symmetries that leave `fixed` where it is."""

    def __init__(self, network: Network, symmetry: Symmetry, fixed: tuple[int, ...]) -> None:
        self._network, self._symmetry, self._fixed = network, symmetry, fixed
        self._alone = symmetry.canonical(*fixed)[1]
        self._numbers: dict[tuple[int, ...], int] = {}
        self._representative: list[int] = []
        self._copies: list[int] = []

    def of(self, link: int) -> int:
        """The kind of the capacity that a link takes up."""
        resource = int(self._network.resource[link])
        # Symmetries move the first link of a capacity to the first link of another.
        first = int(self._network.representative[resource])
        ends = int(self._network.tail[first]), int(self._network.head[first])
        key, size = self._symmetry.canonical(*self._fixed, *ends)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._representative.append(resource)
            self._copies.append(size // self._alone)
        return self._numbers[key]

    def problem(self, commodities: list[Commodity]) -> Problem:
        """The problem of moving all of the commodities together."""
        return Problem(
            tuple(commodities),
            np.array(self._representative, dtype=np.int32),
            np.array(self._copies, dtype=np.int64),
            is_collapsed=True,
        )
