"""What an answer about many transfers says of itself: taken for granted, and left out."""

from collections.abc import Iterator

from service.api.schemas.answers import StatementOut
from service.core.topology.expand import Expansion
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.demands import Gathering
from service.core.topology.flows.prediction import PredictionMethod
from service.core.topology.flows.questions import FlowFindings
from service.core.topology.flows.results import Method
from service.core.topology.flows.use import Uses

__all__ = ["flow_assumptions", "flow_gaps"]

_ROUTES = {
    FlowRouting.PINNED: "each pair keeps to its pinned path, and bounds hold for these paths alone",
    FlowRouting.ANY: (
        "traffic may be divided over all routes that leave no host but the first, enter no host "
        "but those of their ends, and pass through a GPU by NVLink on one side of it at least"
    ),
}
_GATHERING_ROUTES = {
    FlowRouting.PINNED: (
        "the devices send to each other over the links of their pinned paths, by whatever algorithm"
    ),
    FlowRouting.ANY: "devices that take part pass on everything, over whatever links",
}


def flow_assumptions(
    expansion: Expansion, routing: FlowRouting, found: FlowFindings
) -> Iterator[StatementOut]:
    """What the numbers take for granted."""
    is_gathering = isinstance(found.demand, Gathering)
    routes = (_GATHERING_ROUTES if is_gathering else _ROUTES)[routing]
    yield StatementOut(code="routing", detail=routes)
    yield StatementOut(
        code="nominal_capacity",
        detail="bounds use nominal rates, undisturbed by other traffic; the prediction uses "
        "effective ones where they are known",
    )
    if not is_gathering:
        yield StatementOut(code="common_start", detail="all messages can start at the same time")
    if found.prediction is not None:
        if found.prediction.method is PredictionMethod.RING:
            detail = "a ring over the devices in the order given, each on its pinned path"
            if found.prediction.rings > 1:
                detail = (
                    f"{found.prediction.rings} rings, one for each NIC by which the pinned paths "
                    "leave a host, each for an equal share of the bytes: devices in the order "
                    "given, host by host, turned within hosts so that each ring has its own NIC"
                )
        elif found.prediction.method is PredictionMethod.REDUCTION_TREES:
            detail = (
                "a tree for each device's share: within hosts to the device at the owner's place, "
                "from there to the owner, and back, over pinned paths; NVSwitches and switches of "
                "the fabric add up and copy at the rate of their links"
            )
        else:
            detail = "each message on its pinned path; links are shared max-min fairly"
        yield StatementOut(code="prediction", detail=detail)
    yield from _assumed_rates(found)
    for text in expansion.assumptions:
        yield StatementOut(code="topology", detail=text)


def flow_gaps(found: FlowFindings, uses: Uses | None) -> Iterator[StatementOut]:
    """What the numbers leave out."""
    yield StatementOut(
        code="protocol_overhead",
        detail="headers, acknowledgements and the time of the software that sends; effective rates "
        "hold what was measured of them",
    )
    if found.bounds.unreachable:
        detail = "pairs that no route joins: what they should move is part of no number"
        yield StatementOut(code="unreachable", detail=detail)
    if found.bounds.method is Method.CUTS and (found.bounds.bounds or not found.bounds.unreachable):
        yield StatementOut(
            code="concurrent_flow",
            detail="the program of the concurrent flow would be too large, or its paths too many: "
            "only ports and cuts were looked at, so better bounds may exist, and a pair that links "
            "join by no allowed route would not be noticed",
        )
    if found.prediction is None and len(found.demand.vertices):
        yield StatementOut(
            code="prediction",
            detail="no time is predicted for pairs without a path and for too many messages",
        )
    if uses is None and len(found.demand.vertices):
        yield StatementOut(code="link_uses", detail="what each link carries is not known")


def _assumed_rates(found: FlowFindings) -> Iterator[StatementOut]:
    """How far the witnesses rest on rates that nobody stated."""
    network = found.study.network
    resources = {part.resource for bound in found.bounds.bounds for part in bound.parts}
    assumed = [
        network.resource_name(resource)
        for resource in sorted(resources)
        if network.links[int(network.representative[resource])].bandwidth_assumed
    ]
    if assumed:
        some = ", ".join(assumed[:3]) + (", ..." if len(assumed) > 3 else "")
        yield StatementOut(
            code="assumed_bandwidth",
            detail=f"the nominal rates of {len(assumed)} links in the witnesses are assumptions "
            f"({some}): the bounds hold under them only",
        )
