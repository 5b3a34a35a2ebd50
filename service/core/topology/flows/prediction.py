"""How long transfers are expected to take: over pinned paths, at effective rates, fairly shared.

All-gathers, reduce-scatters and all-reduces are expected to run as rings in the order of their
devices, the algorithm that libraries use for large messages without help of the network, one for
each NIC of a host where that is quicker. What the network adds up is expected to go over trees, see
`service.core.topology.flows.reduction_trees`.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from service.core.topology.collectives import (
    Algorithm,
    CollectiveTraffic,
    NoPath,
    collective_traffic,
)
from service.core.topology.flows.demands import (
    CollectiveKind,
    Demand,
    Exchange,
    Gathering,
    Messages,
)
from service.core.topology.flows.exchanges import each_to_each, paths_are_found
from service.core.topology.flows.fair_sharing import share_fairly
from service.core.topology.flows.pinned import pinned_routes
from service.core.topology.flows.reduction_trees import reduction_trees
from service.core.topology.flows.results import Load
from service.core.topology.flows.study import FlowStudy

__all__ = ["FlowPrediction", "PredictionMethod", "predict"]

Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]


class PredictionMethod(StrEnum):
    """What is expected to run."""

    ALL_AT_ONCE = "all_at_once"  # each message from the common start
    RING = "ring"  # each device to the next, in one order or in one for each NIC
    REDUCTION_TREES = "reduction_trees"  # switches add up and copy a share for each device


@dataclass(frozen=True, slots=True, eq=False)
class FlowPrediction:
    """When each message of `messages` (F,) is complete, in seconds from the start.

    `transfer_seconds` (F,) is what the bytes take and `latency_seconds` (F,) what is added to it.
    Rings and trees have no messages and one end, and `loads` are theirs; without it loads are those
    of the messages. `rings` is how many there are.
    """

    method: PredictionMethod
    messages: Messages
    transfer_seconds: Float64Array
    latency_seconds: Float64Array
    loads: tuple[Load, ...] | None = None
    rings: int = 0

    @property
    def ends(self) -> Float64Array:
        """(F,) seconds."""
        return self.transfer_seconds + self.latency_seconds

    @property
    def seconds(self) -> float:
        """When all is done; 0 when nothing moves."""
        return float(self.ends.max(initial=0.0))


def predict(
    study: FlowStudy, demand: Demand, *, in_network_reduction: bool = False
) -> FlowPrediction | None:
    """What is expected; None where some message has no path, or too much would have to be done."""
    if isinstance(demand, Messages):
        return _all_at_once(study, demand) if paths_are_found(study, demand.pairs) else None
    if isinstance(demand, Exchange):
        key = "exchange", demand.vertices.tobytes()
        unit = study.keep(key, lambda: _exchange_of_one_byte(study, demand.vertices))
        return None if unit is None else _times(unit, demand.pair_bytes)
    if isinstance(demand, Gathering):
        if demand.kind is CollectiveKind.ALL_REDUCE and in_network_reduction:
            return _trees(study, demand)
        return _rings(study, demand)
    raise TypeError(type(demand))


def _exchange_of_one_byte(study: FlowStudy, devices: Int32Array) -> FlowPrediction | None:
    messages = each_to_each(study, devices, Fraction(1))
    return None if messages is None else _all_at_once(study, messages)


def _times(unit: FlowPrediction, factor: Fraction) -> FlowPrediction:
    messages = Messages(
        unit.messages.sources,
        unit.messages.targets,
        tuple(amount * factor for amount in unit.messages.amounts),
    )
    seconds = unit.transfer_seconds * float(factor)
    return FlowPrediction(unit.method, messages, seconds, unit.latency_seconds)


def _rings(study: FlowStudy, gathering: Gathering) -> FlowPrediction | None:
    """All steps of all rings at once: the fullest capacity decides."""
    network = study.network
    is_reduce = gathering.kind is CollectiveKind.ALL_REDUCE
    algorithm = Algorithm.ALL_REDUCE_RING if is_reduce else Algorithm.SCATTER_RING
    devices = gathering.vertices
    key = "rings", algorithm, devices.tobytes()
    traffic = study.keep(key, lambda: _ring_traffic(study, devices.tolist(), algorithm))
    if traffic is None:
        return None
    whole = gathering.message_bytes
    return FlowPrediction(
        PredictionMethod.RING,
        Messages.of([]),
        np.array([float(whole * traffic.least_seconds_per_byte)]),
        np.array([traffic.latency_seconds]),
        tuple(
            Load(network.resource_number[name], 1, float(whole * share))
            for name, share in traffic.share_of.items()
        ),
        traffic.rings,
    )


def _ring_traffic(
    study: FlowStudy, devices: list[int], algorithm: Algorithm
) -> CollectiveTraffic | None:
    network = study.network
    if not paths_are_found(study, pairwise([*devices, devices[0]])):
        return None
    names = [network.names[device] for device in devices]
    found = collective_traffic(study.finder, [names], algorithm, network.cluster.vertices)
    return None if isinstance(found, NoPath) else found


def _trees(study: FlowStudy, gathering: Gathering) -> FlowPrediction | None:
    """All shares at once: the fullest capacity decides."""
    devices, network = gathering.vertices, study.network
    key = "reduction trees", devices.tobytes()
    trees = study.keep(key, lambda: reduction_trees(study, devices))
    if trees is None:
        return None
    share = float(gathering.message_bytes / len(devices))
    loads: dict[int, float] = {}
    for link, count in trees.shares.items():
        resource = int(network.resource[link])
        loads[resource] = loads.get(resource, 0.0) + count * share
    return FlowPrediction(
        PredictionMethod.REDUCTION_TREES,
        Messages.of([]),
        np.array([share * trees.seconds_of_a_byte(network)]),
        np.array([trees.latency_seconds]),
        tuple(Load(resource, 1, total) for resource, total in loads.items()),
    )


def _all_at_once(study: FlowStudy, messages: Messages) -> FlowPrediction | None:
    """All messages from the start on."""
    network = study.network
    routes = pinned_routes(network, study.finder, messages)
    if routes.lost:
        return None
    amounts = np.array([float(amount) for amount in messages.amounts])
    ends = share_fairly(routes.links, amounts, network.resource, network.effective)
    if ends is None:
        return None
    latencies = np.array([path.latency_seconds for path in routes.paths])
    return FlowPrediction(PredictionMethod.ALL_AT_ONCE, messages, ends, latencies)
