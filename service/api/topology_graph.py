"""Pictures of a stored topology."""

from collections.abc import Collection
from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.params import FromQuery
from msgspec import Meta

from service.api.documents import DocumentReference
from service.api.injection import InjectedServices
from service.api.topology_queries import (
    MAX_QUERY_TEXT,
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
from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.topology.bounds import MAX_MESSAGE_BYTES, Transfer, link_loads
from service.core.topology.cluster import Cluster
from service.core.topology.nic_sharing import HostSharing, check_sharing_work, host_sharing
from service.core.topology.pair_paths import check_pairs
from service.core.topology.path_kinds import path_kind
from service.core.topology.paths import path_finder
from service.formats.cluster_overlay import NOTHING, Overlay, load_overlay, path_overlay
from service.formats.fabric_svg import fabric_svg
from service.formats.host_svg import host_svg
from service.web import problem_types
from service.web.conditional import entity_tag, is_unmodified
from service.web.openapi import CONDITIONAL, PROBLEMS

__all__ = ["get_graph"]

_NAME = r"[ -+\--:<-~]{1,200}"
_PAIR = rf"{_NAME},{_NAME}"
_SENT = rf"{_PAIR}(?:,[0-9]{{1,16}})?"

OnePath = FromQuery[
    Annotated[
        str,
        Meta(
            pattern=rf"^{_PAIR}$(?!\n)",
            max_length=401,
            description="source,target: the pinned path of these is laid over the picture.",
            examples=["host0/gpu0,host1/gpu3"],
        ),
    ]
    | None
]
Load = FromQuery[
    Annotated[
        str,
        Meta(
            pattern=rf"^(?:all_to_all|{_SENT}(?:;{_SENT}){{0,255}})$(?!\n)",
            max_length=MAX_QUERY_TEXT,
            description="Transfers whose load is laid over the picture: source,target or "
            "source,target,bytes with semicolons between (equal ones without bytes), or all_to_all "
            "for every pair of GPUs of the host (or of the topology, up to 128 GPUs).",
            examples=["host0/gpu0,host1/gpu0,4194304;host0/gpu1,host1/gpu0,1048576"],
        ),
    ]
    | None
]
_ALL_TO_ALL = "all_to_all"
_MAX_ALL_TO_ALL = 128
_EQUAL_BYTES = 1_000_000_000


@get(
    "/{name:str}/graph.svg",
    operation_id="get_topology_graph",
    summary="A picture of a cluster or of one host",
    media_type="image/svg+xml",
    opt={
        **CONDITIONAL,
        PROBLEMS: (problem_types.INVALID_INPUT, problem_types.WORK_BUDGET_EXCEEDED),
    },
)
async def get_graph(
    request: Request[Any, Any, Any],
    services: InjectedServices,
    name: DocumentReference,
    host: OneHost = None,
    path: OnePath = None,
    load: Load = None,
    hosts: AllocatedHosts = None,
    devices: AllocatedDevices = None,
) -> Response[bytes]:
    """Hosts, leaves and spines, or the inside of one host; wider lines are faster.

    Hosts that are alike are one box when there are many, and long rows are cut short. In the
    picture of a host the links that several GPUs leave through are marked. With `hosts` or
    `devices` only these GPUs count for that, and for all_to_all. A topology of a single host is
    drawn as that host.
    """
    revision = await documents.get(services, DocumentKind.TOPOLOGY, name)
    headers = {"ETag": entity_tag(version_tag(revision))}
    if is_unmodified(request, version_tag(revision)):
        return Response(b"", status_code=304, headers=headers)
    expansion = await topology_work.expanded(services, revision)
    cluster = expansion.cluster

    def weigh(cluster: Cluster) -> Weight:
        if load == _ALL_TO_ALL:
            pairs = _MAX_ALL_TO_ALL**2
        else:
            pairs = 0 if load is None else load.count(";") + 1
        return topology_work.picture(cluster, pairs + (path is not None))

    def draw() -> bytes:
        if host is not None:
            check_host(cluster, host)
        allocation = allocated_in_query(cluster, hosts, devices)
        senders = None if allocation is None else frozenset(allocation.devices)
        overlay = _overlay(cluster, host, path, load, senders)
        chosen = host
        if chosen is None and len(cluster.hosts) == 1 and not _has_switches(cluster):
            (chosen,) = cluster.hosts
        if chosen is None:
            return fabric_svg(cluster, title=revision.reference, overlay=overlay).encode()
        sharing = _sharing(cluster, chosen, senders)
        svg = host_svg(cluster, chosen, title=revision.reference, sharing=sharing, overlay=overlay)
        return svg.encode()

    content = await topology_work.answered(services, revision, expansion, weigh, draw)
    return Response(content, media_type="image/svg+xml", headers=headers)


def _has_switches(cluster: Cluster) -> bool:
    return any(vertex.host is None for vertex in cluster.vertices.values())


def _sharing(cluster: Cluster, host: str, senders: Collection[str] | None) -> HostSharing | None:
    """What is marked in the picture; nothing in a host with too many devices to compare."""
    try:
        check_sharing_work(cluster, [host])
    except WorkBudgetExceeded:
        return None
    return host_sharing(cluster, host, senders)


def _overlay(
    cluster: Cluster,
    host: str | None,
    path: str | None,
    load: str | None,
    senders: Collection[str] | None,
) -> Overlay:
    if path is not None and load is not None:
        detail = "a path or a load is laid over a picture, not both"
        raise InvalidInput([Fault(FaultCode.EXCLUSIVE_FIELDS, ("load",), detail)])
    if path is not None:
        pairs = _pairs(path)
        check_pairs(cluster, pairs, "path")
        (source, target) = pairs[0]
        found = path_finder(cluster).path(source, target)
        kind = path_kind(cluster, () if found is None else found.links)
        return path_overlay(found, source, target, kind)
    if load is None:
        return NOTHING

    if load == _ALL_TO_ALL:
        pairs = _all_to_all(cluster, host, senders)
        sizes = None
    else:
        pairs, sizes = _pairs(load), _sizes(load)
    check_pairs(cluster, pairs, "load")
    finder = path_finder(cluster)
    sent = sizes or [_EQUAL_BYTES] * len(pairs)
    paths = [finder.path(*pair) for pair in pairs]
    loads = link_loads(
        [Transfer(one, size) for one, size in zip(paths, sent, strict=True) if one is not None]
    )
    torn = [f"{a} to {b}" for (a, b), one in zip(pairs, paths, strict=True) if one is None]
    return load_overlay(loads, len(pairs) - len(torn), torn, equal=sizes is None)


def _pairs(text: str) -> list[tuple[str, str]]:
    split = (pair.split(",") for pair in text.split(";"))
    return [(source, target) for source, target, *_ in split]


def _sizes(text: str) -> list[int] | None:
    """The bytes of each transfer; None where none are given. Raises `InvalidInput`."""
    given = [pair.split(",")[2:] for pair in text.split(";")]
    if not any(given):
        return None
    if not all(given):
        detail = "bytes are given for all transfers, or for none of them, which are then equal"
        raise InvalidInput([Fault(FaultCode.INCONSISTENT, ("load",), detail)])
    sizes = [int(size) for (size,) in given]
    if max(sizes) > MAX_MESSAGE_BYTES:
        detail = f"a transfer has at most {MAX_MESSAGE_BYTES} bytes; got {max(sizes)}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("load",), detail)])
    return sizes


def _all_to_all(
    cluster: Cluster, host: str | None, senders: Collection[str] | None
) -> list[tuple[str, str]]:
    gpus = [
        gpu.name
        for gpu in cluster.devices
        if (host is None or gpu.host == host) and (senders is None or gpu.name in senders)
    ]
    if len(gpus) > _MAX_ALL_TO_ALL:
        detail = (
            f"all_to_all is drawn for at most {_MAX_ALL_TO_ALL} GPUs, and these are {len(gpus)}:"
            " give a host, an allocation, or pairs"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("load",), detail)])
    return [(one, other) for one in gpus for other in gpus if one != other]
