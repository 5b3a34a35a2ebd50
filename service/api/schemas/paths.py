"""Wire types of the ways between two devices, and of what they share with other pairs."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.allocations import (
    AllocationIn,
    AllocationOut,
    allocation_assumptions,
    allocation_out,
)
from service.api.schemas.answers import Pin, StatementOut
from service.api.schemas.physical_paths import PathOut, path_fields
from service.app.ports import Revision
from service.core.plans.allocation import Allocation
from service.core.topology.bounds import (
    MAX_MESSAGE_BYTES,
    transfer_lower_bound_seconds,
    transfer_prediction_seconds,
)
from service.core.topology.cluster import Cluster
from service.core.topology.expand import Expansion
from service.core.topology.pair_paths import (
    MAX_CONCURRENT_PAIRS,
    MAX_LISTED_PATHS,
    FoundPath,
    PairPaths,
    PathRole,
)
from service.core.topology.path_kinds import NicReach, PathKind, path_kind
from service.core.topology.paths import PhysicalPath
from service.core.topology.sharing import SharedCapacity, ShareLevel
from service.formats.documents.fields import or_unset

__all__ = [
    "ConcurrentPair",
    "DevicePair",
    "NicOut",
    "PairPath",
    "PathsAnswer",
    "PathsRequest",
    "SharedCapacityOut",
    "paths_answer",
]

_Device = Annotated[str, Meta(min_length=1, max_length=200, examples=["host0/gpu0"])]
_Seconds = Annotated[float, Meta(ge=0)]


class DevicePair(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Where something is sent from, and where to."""

    source: Annotated[_Device, Meta(description="host/device, or the name of a switch.")]
    target: Annotated[_Device, Meta(description="host/device, or the name of a switch.")]


class PathsRequest(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A pair of devices, and the pairs that send at the same time."""

    source: Annotated[_Device, Meta(description="host/device, or the name of a switch.")]
    target: Annotated[_Device, Meta(description="host/device, or the name of a switch.")]
    message_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_MESSAGE_BYTES)] | UnsetType,
        Meta(description="Without it there are no times.", examples=[16777216]),
    ] = UNSET
    concurrent: Annotated[
        list[DevicePair],
        Meta(
            max_length=MAX_CONCURRENT_PAIRS,
            description="Other pairs, each on its pinned path: what the ways share with them.",
        ),
    ] = []
    allocation: Annotated[
        AllocationIn | UnsetType,
        Meta(description="What a job has of the cluster: the devices named here belong to it."),
    ] = UNSET
    max_alternatives: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_LISTED_PATHS,
            description="How many paths of equal cost, and how many with a GPU that forwards, are "
            "listed; all are counted.",
        ),
    ] = 8


class SharedCapacityOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A capacity of a path that concurrent pairs use as well."""

    level: Annotated[
        ShareLevel,
        Meta(
            description="nvlink: a GPU's port or a private NVLink; card, slot: PCIe of a GPU "
            "or NIC; uplink: PCIe between switches; host_bridge: PCIe into a CPU; on_chip: a host "
            "bridge to its CPU; socket: CPU to CPU; port: a NIC's port; leaf_uplink, "
            "leaf_downlink: between tiers of the fabric; "
            "fabric: within a tier."
        ),
    ]
    link: Annotated[
        str, Meta(description="source->target; source<->target where both directions share it.")
    ]
    bandwidth_bytes_per_second: Annotated[float, Meta(gt=0, description="Nominal.")]
    pairs: Annotated[
        list[int], Meta(description="Positions in `concurrent` of those that use it too.")
    ]
    equal_share_bytes_per_second: Annotated[
        float,
        Meta(
            gt=0,
            description="The nominal rate divided evenly among them and this path; neither a bound "
            "nor a prediction.",
        ),
    ]
    together_lower_bound_seconds: Annotated[
        float | UnsetType,
        Meta(
            description="Least time this link needs when each of them and this path sends "
            "`message_bytes`; absent without it."
        ),
    ] = UNSET


class NicOut(msgspec.Struct, kw_only=True, frozen=True):
    """A NIC that a path leaves a host or enters it by."""

    nic: str
    kind: Annotated[
        PathKind, Meta(description="Of the way between the end and this NIC: how near it is.")
    ]


class PairPath(PathOut, kw_only=True, frozen=True, omit_defaults=True):
    """One way between the two devices."""

    role: Annotated[
        PathRole,
        Meta(
            description="pinned: what bounds and predictions of plans use; equal_cost: as near and "
            "as wide; pxn, nvb: a GPU forwards, to another host or within one."
        ),
    ]
    kind: Annotated[
        PathKind,
        Meta(
            description="nvlink: NVLinks only; nvb: and a GPU between; pix, pxb: at most one, "
            "several PCIe switches; pxn: NVLink, then PCIe from another GPU; phb: over a host "
            "bridge; "
            "node: over several host bridges of a NUMA node; sys: between sockets; rail, leaf: "
            "over one switch of the fabric, of one rail or not; spine: over several."
        ),
    ]
    forwarded_by: Annotated[
        str | UnsetType, Meta(description="The GPU between; its NVLinks carry the bytes too.")
    ] = UNSET
    source_nic: Annotated[
        NicOut | UnsetType, Meta(description="Absent where none is next to the fabric.")
    ] = UNSET
    target_nic: NicOut | UnsetType = UNSET
    lower_bound_seconds: Annotated[
        _Seconds | UnsetType,
        Meta(
            description="No transfer over this path is quicker: latency floors, and the bytes at "
            "the nominal rate of the bottleneck. Other paths may be."
        ),
    ] = UNSET
    predicted_seconds: Annotated[
        _Seconds | UnsetType,
        Meta(description="On an otherwise idle path: typical latencies and effective rates."),
    ] = UNSET
    shared: Annotated[
        list[SharedCapacityOut], Meta(description="With the pairs in `concurrent`, hop by hop.")
    ]


class ConcurrentPair(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A concurrent pair and the kind of its pinned path."""

    source: str
    target: str
    reachable: bool
    kind: Annotated[PathKind | UnsetType, Meta(description="Absent when unreachable.")] = UNSET


class PathsAnswer(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The ways between two devices."""

    pins: Annotated[list[Pin], Meta(description="The topology at the revision that was used.")]
    source: str
    target: str
    reachable: Annotated[
        bool,
        Meta(description="Whether any allowed path joins them. That none does is a result."),
    ]
    paths: Annotated[
        list[PairPath],
        Meta(description="The pinned path, those of equal cost, those with a GPU that forwards."),
    ]
    equal_cost_alternatives: Annotated[
        int, Meta(ge=0, description="Beside the pinned path, listed or not; up to a million.")
    ]
    forwarding_alternatives: Annotated[
        int, Meta(ge=0, description="With a GPU that forwards, listed or not.")
    ]
    concurrent: list[ConcurrentPair]
    allocation: Annotated[
        AllocationOut | UnsetType, Meta(description="Absent when the request has none.")
    ] = UNSET
    assumptions: list[StatementOut]
    not_represented: list[StatementOut]


_ASSUMED = (
    StatementOut(code="pinned_paths", detail="each concurrent pair keeps to its pinned path"),
    StatementOut(
        code="cut_through",
        detail="a message passes all hops of a path at once, in parts small enough; a GPU that "
        "forwards does so as well",
    ),
)
_LEFT_OUT = (
    StatementOut(
        code="other_traffic",
        detail="traffic of pairs that are not given, and what the given ones slow each other down "
        "by: the times are those of a path that nobody else uses",
    ),
    StatementOut(
        code="protocol_overhead",
        detail="headers, acknowledgements and the time of the software that sends; effective rates "
        "hold what was measured of them",
    ),
)


def paths_answer(
    revision: Revision,
    expansion: Expansion,
    request: PathsRequest,
    found: PairPaths,
    allocation: Allocation | None,
) -> PathsAnswer:
    """What was found as it goes over the wire. Pure, and too much for the event loop at times."""
    cluster = expansion.cluster
    size = None if request.message_bytes is UNSET else request.message_bytes
    return PathsAnswer(
        pins=[Pin(kind=revision.kind.value, reference=revision.reference, digest=revision.digest)],
        source=request.source,
        target=request.target,
        reachable=any(one.role is PathRole.PINNED for one in found.paths),
        paths=[_pair_path(one, size) for one in found.paths],
        equal_cost_alternatives=found.equal_cost,
        forwarding_alternatives=found.forwarding,
        concurrent=[
            _concurrent(cluster, pair, path)
            for pair, path in zip(request.concurrent, found.concurrent, strict=True)
        ],
        allocation=UNSET if allocation is None else allocation_out(cluster, allocation),
        assumptions=[
            *_ASSUMED,
            *allocation_assumptions(allocation),
            *_assumed_rates(found),
            *(StatementOut(code="topology", detail=text) for text in expansion.assumptions),
        ],
        not_represented=list(_LEFT_OUT),
    )


def _pair_path(found: FoundPath, size: int | None) -> PairPath:
    return PairPath(
        **path_fields(found.path),
        role=found.role,
        kind=found.kind,
        forwarded_by=or_unset(found.forwarded_by),
        source_nic=_nic(found.source_nic),
        target_nic=_nic(found.target_nic),
        lower_bound_seconds=(
            UNSET if size is None else transfer_lower_bound_seconds(found.path, size)
        ),
        predicted_seconds=(
            UNSET if size is None else transfer_prediction_seconds(found.path, size)
        ),
        shared=[_shared(one, size) for one in found.shared],
    )


def _nic(reach: NicReach | None) -> NicOut | UnsetType:
    return UNSET if reach is None else NicOut(nic=reach.nic, kind=reach.kind)


def _shared(shared: SharedCapacity, size: int | None) -> SharedCapacityOut:
    return SharedCapacityOut(
        level=shared.level,
        link=shared.link.resource,
        bandwidth_bytes_per_second=shared.link.bandwidth_bytes_per_second,
        pairs=list(shared.users),
        equal_share_bytes_per_second=shared.equal_share_bytes_per_second,
        together_lower_bound_seconds=UNSET if size is None else shared.lower_bound_seconds(size),
    )


def _concurrent(cluster: Cluster, pair: DevicePair, path: PhysicalPath | None) -> ConcurrentPair:
    return ConcurrentPair(
        source=pair.source,
        target=pair.target,
        reachable=path is not None,
        kind=UNSET if path is None else path_kind(cluster, path.links),
    )


def _assumed_rates(found: PairPaths) -> list[StatementOut]:
    """How far bounds and predictions rest on what nobody stated."""
    links = {link.name: link for one in found.paths for link in one.path.links}.values()
    counted = (
        (
            "assumed_bandwidth",
            sum(link.bandwidth_assumed for link in links),
            "nominal rates that are assumptions: bounds over them hold under it only",
        ),
        (
            "nominal_bandwidth",
            sum(link.effective_bytes_per_second is None for link in links),
            "no known effective rate: predictions use the nominal one there",
        ),
        (
            "latency_unknown",
            sum(link.latency_seconds is None for link in links),
            "no known latency: predictions count only the guaranteed floor there, which may be 0",
        ),
    )
    return [
        StatementOut(code=code, detail=f"{number} of the {len(links)} links listed have {what}")
        for code, number, what in counted
        if number
    ]
