"""How long tokens are on the way: what an exchange puts on the links, and when it is done.

A dispatch or a combine is a matrix of bytes for each expert group; all groups of a stage exchange
at once and share links. With relays there are several stages of it, which follow one another. Each
pair's bytes keep to their pinned path. A stage takes what the link that is taken up longest takes,
at effective rates, and before it what each message waits: a rank starts the messages to its peers
one after the other, so that the rank with most of it counts (alpha of a peer being the latency of
the path to it).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.moe.traffic import Copies
from service.core.topology.flows.block_paths import BlockPaths, block_paths
from service.core.topology.flows.blocks import Block, Blocks
from service.core.topology.flows.network import Network
from service.core.topology.flows.study import FlowStudy
from service.core.units import to_picoseconds

__all__ = [
    "ExchangeCost",
    "GroupExchange",
    "LinkLoads",
    "exchange_paths",
    "price_exchange",
]

Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class GroupExchange:
    """What one expert group exchanges: R devices (vertices of a network), the ranks in their order.

    Each of `stages` is (R, R) int64 bytes from each rank to each; they follow one another. Where
    they are only expected, `fewest` are the least there can be, and what bounds are taken of.
    """

    devices: Int32Array
    stages: tuple[Int64Array, ...]
    fewest: tuple[Int64Array, ...] | None = None

    @classmethod
    def of_copies(
        cls,
        devices: Int32Array,
        stages: Sequence[Copies],
        copy_bytes: int,
        fewest: Sequence[Copies] | None = None,
    ) -> "GroupExchange":
        """Copies that weigh `copy_bytes` each."""

        def weighed(copies: Sequence[Copies]) -> tuple[Int64Array, ...]:
            return tuple(one.between * np.int64(copy_bytes) for one in copies)

        return cls(devices, weighed(stages), None if fewest is None else weighed(fewest))

    def reversed(self) -> "GroupExchange":
        """The same bytes on their way back: a combine of a dispatch, the last stage first."""
        fewest = None if self.fewest is None else _turned(self.fewest)
        return replace(self, stages=_turned(self.stages), fewest=fewest)

    @property
    def least(self) -> Int64Array:
        """(R, R) the bytes of all stages that there are at least, together."""
        stages = self.stages if self.fewest is None else self.fewest
        count = len(self.devices)
        return sum(stages, np.zeros((count, count), dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class LinkLoads:
    """Links by their number in the network (K,), and the bytes that each carries: int64, not 0."""

    links: Int32Array
    bytes: Int64Array

    @classmethod
    def of(cls, link_bytes: Int64Array) -> "LinkLoads":
        """From the bytes of all links (E,)."""
        links = np.flatnonzero(link_bytes)
        return cls(links.astype(np.int32), link_bytes[links])

    def plus(self, other: "LinkLoads") -> "LinkLoads":
        """Both together."""
        links = np.concatenate([self.links, other.links])
        found, place = np.unique(links, return_inverse=True)
        summed = np.zeros(len(found), dtype=np.int64)
        np.add.at(summed, place, np.concatenate([self.bytes, other.bytes]))
        return LinkLoads(found, summed)

    def resources(self, network: Network) -> tuple[Int64Array, Int64Array]:
        """The capacities that are taken up, by number, and the bytes of each; exact."""
        resources, place = np.unique(network.resource[self.links], return_inverse=True)
        summed = np.zeros(len(resources), dtype=np.int64)
        np.add.at(summed, place, self.bytes)
        return resources.astype(np.int64), summed

    def busy_seconds(self, network: Network) -> Float64Array:
        """How long each of `resources` is taken up, at the effective rates of its links."""
        _, place = np.unique(network.resource[self.links], return_inverse=True)
        held = np.bincount(place, self.bytes / network.effective[self.links])
        return held.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeCost:
    """A prediction of one exchange, dispatch or combine, in picoseconds.

    `transfer_picoseconds` and `latency_picoseconds` are of each stage. `binding` is for each stage
    the capacity (its number) that is taken up longest, None where nothing moves over links.
    `loads` are the bytes on each link over all stages. Where these are only expected, `fewest` are
    those that there are at least; None where they are counted.
    """

    transfer_picoseconds: tuple[int, ...]
    latency_picoseconds: tuple[int, ...]
    binding: tuple[int | None, ...]
    loads: LinkLoads
    fewest: LinkLoads | None = None

    @property
    def least(self) -> LinkLoads:
        """What bounds are taken of."""
        return self.loads if self.fewest is None else self.fewest

    @property
    def picoseconds(self) -> int:
        """All stages, one after the other."""
        return sum(self.transfer_picoseconds) + sum(self.latency_picoseconds)


def exchange_paths(study: FlowStudy, groups: Sequence[GroupExchange]) -> BlockPaths:
    """The pinned paths within the groups; `lost` of it are the first pairs that have none.

    Raises `WorkBudgetExceeded` where finding them is too much work.
    """
    return block_paths(study, [one.devices for one in groups])


def price_exchange(
    study: FlowStudy, groups: Sequence[GroupExchange], *, efficiency: float = 1.0
) -> ExchangeCost:
    """What the exchange of groups that work at once is expected to take.

    All groups have as many stages. Links carry `efficiency` of their effective rates. Pairs without
    a path take nothing: whoever prices a plan makes a fault of `exchange_paths(...).lost` before.
    Raises what `exchange_paths` does, and `InvalidInput` for times that no picoseconds hold.
    """
    paths, network = exchange_paths(study, groups), study.network
    total = np.zeros(len(network.links), dtype=np.int64)
    transfers, latencies, binding = [], [], []
    for stage in range(max((len(one.stages) for one in groups), default=0)):
        found = paths.loads(Blocks.of([Block(one.devices, one.stages[stage]) for one in groups]))
        total += found.link_bytes
        loads = LinkLoads.of(found.link_bytes)
        busy = loads.busy_seconds(network)
        resources, _ = loads.resources(network)
        fullest = int(busy.argmax()) if len(busy) else None
        binding.append(None if fullest is None else int(resources[fullest]))
        transfers.append(
            0 if fullest is None else to_picoseconds(float(busy[fullest]) / efficiency)
        )
        waits = found.sending_picoseconds, found.getting_picoseconds
        latencies.append(max(int(one.max(initial=0)) for one in waits))
    fewest = None
    if any(one.fewest is not None for one in groups):
        blocks = Blocks.of([Block(one.devices, one.least) for one in groups])
        fewest = LinkLoads.of(paths.loads(blocks).link_bytes)
    return ExchangeCost(
        tuple(transfers), tuple(latencies), tuple(binding), LinkLoads.of(total), fewest
    )


def _turned(stages: Sequence[Int64Array]) -> tuple[Int64Array, ...]:
    return tuple(np.ascontiguousarray(one.T) for one in reversed(stages))
