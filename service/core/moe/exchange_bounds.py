"""How long an exchange takes at least, by what would have to carry it.

Two families that are never compared as one: `pinned`, where each pair's bytes keep to their path,
and `any`, where they may go every route that is allowed, over NVLink to another NIC too. All are of
the bytes of all stages together, at nominal capacities and without latencies: stages may overlap,
so their sum is no bound. Bounds are `FlowBound`s: what binds, its bytes, its bytes per second.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.moe.exchange import GroupExchange, LinkLoads, exchange_paths
from service.core.topology.bisection import Bisection, device_bisection
from service.core.topology.flows.blocks import Block, Blocks
from service.core.topology.flows.bounds import FlowRouting, bound_messages
from service.core.topology.flows.cuts import Border, every_family, family_bound, port_family
from service.core.topology.flows.network import Network
from service.core.topology.flows.ordering import greatest
from service.core.topology.flows.results import (
    Binding,
    BindingKind,
    BoundKind,
    Direction,
    FlowBound,
    Method,
    Part,
)
from service.core.topology.flows.study import FlowStudy
from service.core.topology.sharing import ShareLevel, level_of
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = [
    "MAX_FLOW_PAIRS",
    "ExchangeBounds",
    "ExchangeLimit",
    "bound_exchange",
    "bound_picoseconds",
    "group_bisections",
]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# Pairs that send something, up to which a concurrent flow is looked for.
MAX_FLOW_PAIRS = 1_024


class ExchangeLimit(StrEnum):
    """What may limit an exchange, from the device outwards."""

    GPU_PORT = "gpu_port"  # all that a GPU sends, or gets, over all that it has
    CARD = "card"  # PCIe of a card or a slot, and on to the CPU
    NIC = "nic"  # the port of a NIC
    HOST = "host"  # all that leaves or enters a host
    LEAF = "leaf"  # a leaf, or a link above one
    RAIL = "rail"
    CUT = "cut"  # the tightest of all sets of vertices that are looked at
    CONCURRENT_FLOW = "concurrent_flow"  # all bytes at once on all links


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeBounds:
    """The bounds of each kind, those that there are: where nothing moves there is none.

    `method` says how the concurrent flow of any route was found, `Method.CUTS` that it was not and
    the tightest cut stands.
    """

    pinned: Mapping[ExchangeLimit, FlowBound]
    any_route: Mapping[ExchangeLimit, FlowBound]
    method: Method

    def picoseconds(self, routing: FlowRouting) -> int:
        """The greatest of one family, rounded down; 0 where nothing moves."""
        family = self.pinned if routing is FlowRouting.PINNED else self.any_route
        return max(map(bound_picoseconds, family.values()), default=0)


def bound_picoseconds(bound: FlowBound) -> int:
    """A bound, rounded down."""
    return int(bound.exact_seconds * PICOSECONDS_PER_SECOND)


def bound_exchange(
    study: FlowStudy, groups: Sequence[GroupExchange], *, with_flow: bool = True
) -> ExchangeBounds:
    """Bounds of the bytes that groups exchange at once, at least.

    The concurrent flow of any route is looked for up to `MAX_FLOW_PAIRS` pairs, `with_flow` alone.
    Pairs without a path count for nothing. Raises what `exchange_paths` does.
    """
    demand = Blocks.of([Block(one.devices, one.least) for one in groups])
    loads = LinkLoads.of(exchange_paths(study, groups).loads(demand).link_bytes)
    any_route, method = _any_route(study, demand, with_flow=with_flow)
    return ExchangeBounds(_pinned(study, loads), any_route, method)


def group_bisections(
    study: FlowStudy, groups: Sequence[GroupExchange]
) -> tuple[Bisection | None, ...]:
    """The worst balanced cut of the devices of each; None where there is none, or too many."""
    return tuple(_bisection(study, one.devices) for one in groups)


def _bisection(study: FlowStudy, devices: Int32Array) -> Bisection | None:
    def find() -> Bisection | None:
        names = [study.network.names[device] for device in devices.tolist()]
        return device_bisection(study.network.cluster, names)

    return study.keep(("bisection", devices.tobytes()), find)


def _any_route(
    study: FlowStudy, demand: Blocks, *, with_flow: bool
) -> tuple[Mapping[ExchangeLimit, FlowBound], Method]:
    network = study.network
    port = family_bound(network, demand, port_family(network, demand.vertices), BoundKind.PORT)
    borders = study.keep(
        "borders of all families",
        lambda: [(family, Border(network, family)) for family in every_family(network)],
    )
    found = [
        (family.kind, family_bound(network, demand, family, border=border))
        for family, border in borders
    ]
    limits = {
        ExchangeLimit.GPU_PORT: port,
        **{
            limit: greatest(bound for kind, bound in found if kind is of)
            for limit, of in (
                (ExchangeLimit.HOST, BindingKind.HOST),
                (ExchangeLimit.LEAF, BindingKind.LEAF),
                (ExchangeLimit.RAIL, BindingKind.RAIL),
            )
        },
    }
    cut, flow, method = greatest([port, *(bound for _, bound in found)]), None, Method.CUTS
    if with_flow and demand.pairs <= MAX_FLOW_PAIRS:
        bounds = bound_messages(study, demand.messages(), FlowRouting.ANY)
        # A link that cannot be avoided is a cut too.
        cut = greatest([cut, bounds.of(BoundKind.CUT)])
        flow, method = bounds.of(BoundKind.CONCURRENT_FLOW), bounds.method
    limits[ExchangeLimit.CUT] = cut
    limits[ExchangeLimit.CONCURRENT_FLOW] = flow
    return {limit: bound for limit, bound in limits.items() if bound is not None}, method


def _pinned(study: FlowStudy, loads: LinkLoads) -> Mapping[ExchangeLimit, FlowBound]:
    network = study.network
    resources, total = loads.resources(network)
    seconds = total / network.capacity[resources]
    levels = study.keep("levels of capacities", dict[int, ShareLevel])
    by_limit: dict[ExchangeLimit, list[int]] = {}
    for place, resource in enumerate(resources.tolist()):
        if resource not in levels:
            link = network.links[int(network.representative[resource])]
            levels[resource] = level_of(network.cluster, link)
        limit = _LIMITS.get(levels[resource])
        if limit is not None:
            by_limit.setdefault(limit, []).append(place)
    limits = {
        limit: _link_bound(network, resources, total, places[int(seconds[places].argmax())])
        for limit, places in by_limit.items()
    }
    port = _port(network, loads)
    if port is None:
        return {}
    fullest = _link_bound(network, resources, total, int(seconds.argmax()))
    # Of given loads no cut is tighter than its fullest link, see `flows.pinned`.
    limits[ExchangeLimit.CUT] = fullest.of_kind(BoundKind.CUT)
    limits[ExchangeLimit.CONCURRENT_FLOW] = fullest.of_kind(BoundKind.CONCURRENT_FLOW)
    limits[ExchangeLimit.GPU_PORT] = port
    return {limit: limits[limit] for limit in ExchangeLimit if limit in limits}


_LIMITS: Mapping[ShareLevel, ExchangeLimit] = {
    ShareLevel.CARD: ExchangeLimit.CARD,
    ShareLevel.SLOT: ExchangeLimit.CARD,
    ShareLevel.UPLINK: ExchangeLimit.CARD,
    ShareLevel.HOST_BRIDGE: ExchangeLimit.CARD,
    ShareLevel.PORT: ExchangeLimit.NIC,
    ShareLevel.LEAF_UPLINK: ExchangeLimit.LEAF,
    ShareLevel.LEAF_DOWNLINK: ExchangeLimit.LEAF,
}


def _link_bound(network: Network, resources: Int64Array, total: Int64Array, at: int) -> FlowBound:
    resource = int(resources[at])
    binding = Binding(BindingKind.LINK, network.resource_name(resource))
    capacity = Fraction(float(network.capacity[resource]))
    part = (Part(resource, 1),)
    return FlowBound(BoundKind.LINK, binding, Fraction(int(total[at])), capacity, part)


def _port(network: Network, loads: LinkLoads) -> FlowBound | None:
    """What a GPU sends, or gets, over all that its paths leave, or enter, it by.

    Pinned paths pass through no GPU but their ends, so all on a GPU's links is its own.
    """
    sides = ((Direction.OUT, network.tail), (Direction.INTO, network.head))
    return greatest(
        _side(network, loads, direction, ends[loads.links]) for direction, ends in sides
    )


def _side(
    network: Network, loads: LinkLoads, direction: Direction, ends: Iterable[int]
) -> FlowBound | None:
    at = np.asarray(ends)
    mine = network.is_gpu[at]
    if not mine.any():
        return None
    count = network.vertex_count
    moved = np.zeros(count, dtype=np.int64)
    np.add.at(moved, at[mine], loads.bytes[mine])
    used = np.unique(
        at[mine].astype(np.int64) * len(network.capacity) + network.resource[loads.links[mine]]
    )
    vertex, resource = np.divmod(used, len(network.capacity))
    rates = np.bincount(vertex, network.capacity[resource], count)
    seconds = np.divide(moved, rates, out=np.zeros(count), where=rates > 0)
    fullest = int(seconds.argmax())
    parts = tuple(Part(one, 1) for one in resource[vertex == fullest].tolist())
    offered = sum((Fraction(float(network.capacity[one.resource])) for one in parts), Fraction(0))
    binding = Binding(BindingKind.DEVICE, network.names[fullest], direction)
    return FlowBound(BoundKind.PORT, binding, Fraction(int(moved[fullest])), offered, parts)
