"""What the GPUs of a stored topology have in common on their way out."""

from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec

from service.api.documents import DocumentReference
from service.api.injection import InjectedServices
from service.api.schemas.shared_reports import MAX_LISTED_GROUPS, SharedReport, shared_report
from service.api.topology_queries import (
    AllocatedDevices,
    AllocatedHosts,
    OneHost,
    allocated_in_query,
    check_host,
)
from service.app import documents, topology_work
from service.app.documents import version_tag
from service.app.ports import DocumentKind
from service.app.weights import Weight
from service.core.topology.cluster import Cluster
from service.core.topology.nic_sharing import check_sharing_work, host_sharing, like_hosts
from service.core.topology.uplinks import uplinks_by_likeness
from service.web import problem_types
from service.web.conditional import entity_tag, is_unmodified
from service.web.openapi import CONDITIONAL, PROBLEMS

__all__ = ["get_shared"]


_PROBLEMS = (problem_types.INVALID_INPUT, problem_types.WORK_BUDGET_EXCEEDED)


@get(
    "/{name:str}/shared",
    operation_id="get_topology_shared",
    summary="What the GPUs of a cluster share on their way out",
    opt={**CONDITIONAL, PROBLEMS: _PROBLEMS},
    responses={200: ResponseSpec(SharedReport, description="Hosts that are alike, told once")},
)
async def get_shared(
    request: Request[Any, Any, Any],
    services: InjectedServices,
    name: DocumentReference,
    host: OneHost = None,
    hosts: AllocatedHosts = None,
    devices: AllocatedDevices = None,
) -> Response[bytes]:
    """Which GPUs go through the same NIC, PCIe link, host bridge, socket link and uplinks.

    By the physical way to the nearest NIC, with each capacity and what an even split leaves each
    GPU. NICs that are equally near, ways that cross sockets and unequal distances are told. With
    `hosts` or `devices` only these GPUs send, and what can cross their middle is told as well.
    """
    revision = await documents.get(services, DocumentKind.TOPOLOGY, name)
    headers = {"ETag": entity_tag(version_tag(revision))}
    if is_unmodified(request, version_tag(revision)):
        return Response(b"", status_code=304, headers=headers)
    expansion = await topology_work.expanded(services, revision)
    cluster = expansion.cluster

    def weigh(cluster: Cluster) -> Weight:
        told = MAX_LISTED_GROUPS if host is None else 1
        is_part = hosts is not None or devices is not None
        return topology_work.sharing(cluster, told, is_part=is_part)

    def report() -> bytes:
        allocation = allocated_in_query(cluster, hosts, devices)
        senders = None if allocation is None else frozenset(allocation.devices)
        groups = like_hosts(cluster, senders)
        if host is not None:
            check_host(cluster, host)
            # The host that was asked for stands for those like it.
            groups = tuple(
                (host, *(name for name in names if name != host))
                for names in groups
                if host in names
            )
        told = [names[0] for names in groups[:MAX_LISTED_GROUPS]]
        check_sharing_work(cluster, told)
        sharing = [host_sharing(cluster, one, senders) for one in told]
        sending = None if senders is None else {name for names in groups for name in names}
        uplinks = uplinks_by_likeness(cluster, sending)
        return msgspec.json.encode(
            shared_report(revision, expansion, groups, sharing, uplinks, allocation)
        )

    content = await topology_work.answered(services, revision, expansion, weigh, report)
    return Response(content, media_type="application/json", headers=headers)
