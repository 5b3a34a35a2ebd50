"""How evenly a stored routing loads ranks, and placements that do it better."""

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.documents import RoutingReference
from service.api.injection import InjectedServices
from service.api.schemas.balance import BalanceAnswer, balance_answer
from service.api.schemas.balance_requests import BalanceRequest, balance_question
from service.app.ports import Revision, Scope
from service.app.routing_balance import balanced
from service.core.moe.balance_report import BalanceReport
from service.core.moe.routing import Routing
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["balance_routing"]

_EXAMPLE = {
    "ranks": 4,
    "ranks_per_node": 2,
    "overflow": "drop",
    "capacity_factor": 1.25,
    "capacity_scope": "source",
    "capacity_factors": [1.0, 1.25, 1.5],
    "extra_slots": 4,
}


@post(
    "/{name:str}/balance",
    operation_id="balance_routing",
    summary="How evenly a routing loads ranks, and what would be better",
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(BalanceAnswer, description="By layer, and over all layers")},
)
async def balance_routing(
    services: InjectedServices, name: RoutingReference, data: JSONBody[BalanceRequest]
) -> Response[bytes]:
    """The busiest expert, rank and host of each layer, what waiting for them costs, what a capacity
    drops, what other factors would drop, and which placements have a less busy rank: with as many
    slots as experts, and with replicas.

    Beside each advice stands what no busiest rank can be below. Rows are counted, and nothing is
    sent: plans that name the routing (`moe.routing`) price what it does to links and stages.
    """
    question = balance_question(data)

    def written(revision: Revision, routing: Routing, report: BalanceReport) -> bytes:
        return msgspec.json.encode(balance_answer(revision, routing, question, report))

    content = await balanced(services, name, question, written)
    return Response(content, media_type="application/json")
