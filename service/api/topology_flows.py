"""Many transfers at once in a stored topology."""

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.documents import DocumentReference
from service.api.injection import InjectedServices
from service.api.schemas.flow_requests import FlowsRequest, flow_inquiry
from service.api.schemas.flows import FlowsAnswer, flows_answer
from service.app import documents, topology_work
from service.app.flows import inquire
from service.app.ports import DocumentKind, Scope
from service.app.weights import Weight
from service.core.topology.cluster import Cluster
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["bound_flows"]

_EXAMPLE = {
    "collective": {
        "kind": "all_to_all",
        "devices": ["host[0-1]/gpu*"],
        "message_bytes": 268_435_456,
    },
    # The loads of pinned paths are the same on every machine; a solver's need not be.
    "routing": "pinned",
}


@post(
    "/{name:str}/flows",
    operation_id="bound_flows",
    summary="How long many transfers take at least",
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(FlowsAnswer, description="The bounds, and what is predicted")},
)
async def bound_flows(
    services: InjectedServices, name: DocumentReference, data: JSONBody[FlowsRequest]
) -> Response[bytes]:
    """Lower bounds by kind for messages that move together or for a collective operation.

    Each bound names what binds and has a witness to add up: bytes that must cross, over what the
    links there carry. Bounds are not simulated and use nominal rates. Beside them stands a
    prediction on pinned paths at effective rates, and what each link carries.
    """
    revision = await documents.get(services, DocumentKind.TOPOLOGY, name)
    expansion = await topology_work.expanded(services, revision)

    def weigh(cluster: Cluster) -> Weight:
        return topology_work.flows(cluster, flow_inquiry(data))

    def answer() -> bytes:
        found = inquire(expansion.cluster, flow_inquiry(data))
        return msgspec.json.encode(flows_answer(revision, expansion, data, found))

    content = await topology_work.answered(services, revision, expansion, weigh, answer)
    return Response(content, media_type="application/json")
