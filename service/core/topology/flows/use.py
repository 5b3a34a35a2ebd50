"""What every used link carries, and for how much of the time."""

from dataclasses import dataclass
from enum import StrEnum

from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.pinned import pinned_loads, pinned_routes
from service.core.topology.flows.prediction import PredictionMethod
from service.core.topology.flows.questions import FlowFindings
from service.core.topology.flows.results import BoundKind, Load

__all__ = ["LinkUse", "UseBasis", "Uses", "uses_of"]


class UseBasis(StrEnum):
    """Which way the bytes are taken to go."""

    PINNED_PATHS = "pinned_paths"
    OPTIMAL_ROUTING = "optimal_routing"
    RING = "ring"
    REDUCTION_TREES = "reduction_trees"


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A load, how long it takes at the nominal rate, and which part of the whole time that is."""

    load: Load
    busy_seconds: float
    utilisation: float


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses of all capacities that carry anything, the fullest first, over `seconds`."""

    basis: UseBasis
    seconds: float
    links: tuple[LinkUse, ...]


def uses_of(found: FlowFindings, routing: FlowRouting) -> Uses | None:
    """What the bounds' routing carries, over the time of the bound.

    Where that is not known, what is predicted to be carried, over the time of the prediction. None
    where nothing is predicted either.
    """
    flow = found.bounds.of(BoundKind.CONCURRENT_FLOW)
    if found.bounds.loads and flow is not None:
        is_pinned = routing is FlowRouting.PINNED
        basis = UseBasis.PINNED_PATHS if is_pinned else UseBasis.OPTIMAL_ROUTING
        return _uses(found, basis, found.bounds.loads, flow.seconds)
    predicted = found.prediction
    if predicted is None:
        return None
    if predicted.loads is not None:
        is_ring = predicted.method is PredictionMethod.RING
        basis = UseBasis.RING if is_ring else UseBasis.REDUCTION_TREES
        return _uses(found, basis, predicted.loads, predicted.seconds)
    network, study = found.study.network, found.study
    carried = pinned_loads(network, pinned_routes(network, study.finder, predicted.messages))
    loads = tuple(Load(resource, 1, float(total)) for resource, total in carried.items())
    return _uses(found, UseBasis.PINNED_PATHS, loads, predicted.seconds)


def _uses(found: FlowFindings, basis: UseBasis, loads: tuple[Load, ...], seconds: float) -> Uses:
    capacity = found.study.network.capacity
    links = []
    for load in loads:
        busy = load.bytes / float(capacity[load.resource])
        # A solver's rounding must not make a link busier than the whole time.
        links.append(LinkUse(load, busy, min(busy / seconds, 1.0) if seconds > 0 else 0.0))
    links.sort(key=lambda use: (-use.utilisation, use.load.resource))
    return Uses(basis, seconds, tuple(links))
