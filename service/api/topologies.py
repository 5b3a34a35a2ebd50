"""Topologies: the document routes, imports, and the expanded cluster's devices and links."""

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery
from msgspec import Meta

from service.api.documents import DocumentReference, document_router
from service.api.injection import InjectedServices
from service.api.schemas.documents import Page
from service.api.schemas.topologies import DeviceEntry, LinkEntry, device_entry, link_entry
from service.api.topology_flows import bound_flows
from service.api.topology_graph import get_graph
from service.api.topology_imports import import_files
from service.api.topology_paths import find_paths
from service.api.topology_shares import get_shared
from service.app import documents, topology_work
from service.app.apart import run_apart
from service.app.documents import version_tag
from service.app.ports import DocumentKind
from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind
from service.web.conditional import entity_tag, is_unmodified
from service.web.cursors import DEFAULT_LIMIT, Cursor, Limit, page_of, read_cursor
from service.web.openapi import CONDITIONAL
from service.web.responses import json_response

__all__ = ["topologies"]

AnyRequest = Request[Any, Any, Any]

HostFilter = FromQuery[
    Annotated[str, Meta(max_length=200, description="Only what is in this host (or ends in it).")]
    | None
]
VertexKindFilter = FromQuery[
    Annotated[VertexKind, Meta(description="Only vertices of this kind.")] | None
]
LinkKindFilter = FromQuery[Annotated[LinkKind, Meta(description="Only links of this kind.")] | None]


@get(
    "/{name:str}/devices",
    operation_id="list_topology_devices",
    summary="List the devices of a cluster",
    opt=CONDITIONAL,
    responses={200: ResponseSpec(Page[DeviceEntry], description="In the order of the document")},
)
async def list_devices(
    request: AnyRequest,
    services: InjectedServices,
    name: DocumentReference,
    host: HostFilter = None,
    kind: VertexKindFilter = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[bytes]:
    """Every vertex of the expanded cluster: accelerators, NICs, CPUs and switches."""

    def wanted(vertex: Vertex) -> bool:
        return (host is None or vertex.host == host) and (kind is None or vertex.kind is kind)

    def chosen(cluster: Cluster) -> Iterable[tuple[int, Vertex]]:
        numbered = enumerate(cluster.vertices.values())
        return ((place, vertex) for place, vertex in numbered if wanted(vertex))

    return await _page(request, services, name, limit, cursor, chosen, device_entry)


@get(
    "/{name:str}/links",
    operation_id="list_topology_links",
    summary="List the links of a cluster",
    opt=CONDITIONAL,
    responses={200: ResponseSpec(Page[LinkEntry], description="In the order of the document")},
)
async def list_links(
    request: AnyRequest,
    services: InjectedServices,
    name: DocumentReference,
    host: HostFilter = None,
    kind: LinkKindFilter = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[bytes]:
    """Every directed link of the expanded cluster; a full-duplex cable is two of them."""

    def wanted(cluster: Cluster, link: Link) -> bool:
        ends = (cluster.vertices[link.source].host, cluster.vertices[link.target].host)
        return (host is None or host in ends) and (kind is None or link.kind is kind)

    def chosen(cluster: Cluster) -> Iterable[tuple[int, Link]]:
        numbered = enumerate(cluster.links.values())
        return ((place, link) for place, link in numbered if wanted(cluster, link))

    return await _page(request, services, name, limit, cursor, chosen, link_entry)


async def _page(
    request: AnyRequest,
    services: InjectedServices,
    name: str,
    limit: int,
    cursor: str | None,
    chosen: Any,
    entry: Any,
) -> Response[bytes]:
    """A page of the parts of a cluster, which has the version of the topology it belongs to."""
    after = read_cursor(request, cursor, tuple[int, int])
    # Later pages are of the revision the first one was of, whatever has been stored since.
    pinned = name if after is None else f"{name.partition('@')[0]}@{after[0]}"
    revision = await documents.get(services, DocumentKind.TOPOLOGY, pinned)
    headers = {"ETag": entity_tag(version_tag(revision))}
    if is_unmodified(request, version_tag(revision)):
        return Response(b"", status_code=304, headers=headers)
    cluster = (await topology_work.expanded(services, revision)).cluster

    def find() -> list[Any]:
        later = (part for part in chosen(cluster) if after is None or part[0] > after[1])
        return list(islice(later, limit + 1))

    found = await run_apart(len(cluster.vertices) + len(cluster.links), find)
    parts, following = page_of(request, found, limit, lambda part: (revision.number, part[0]))
    return json_response(Page.of([entry(part) for _, part in parts], following), headers=headers)


topologies = document_router(
    DocumentKind.TOPOLOGY,
    "two-dgx-h100",
    [list_devices, list_links, import_files, find_paths, bound_flows, get_shared, get_graph],
)
