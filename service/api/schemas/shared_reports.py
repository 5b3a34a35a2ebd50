"""Wire types of what the GPUs of a cluster have in common on their way out."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.allocations import AllocationOut, allocation_out
from service.api.schemas.answers import Pin, StatementOut
from service.app.ports import Revision
from service.core.plans.allocation import Allocation
from service.core.topology.expand import Expansion
from service.core.topology.nic_sharing import (
    CommonCapacity,
    GpuNics,
    HostSharing,
    Oddity,
    OddityCode,
)
from service.core.topology.path_kinds import PathKind
from service.core.topology.sharing import ShareLevel
from service.core.topology.uplinks import Uplinks
from service.formats.documents.fields import or_unset

__all__ = [
    "MAX_LISTED_GROUPS",
    "MAX_LISTED_NAMES",
    "CommonCapacityOut",
    "GpuOut",
    "HostGroup",
    "NicWay",
    "OddityOut",
    "SharedReport",
    "UplinksOut",
    "shared_report",
]

MAX_LISTED_GROUPS = 100
MAX_LISTED_NAMES = 32

_Rate = Annotated[float, Meta(gt=0)]


class NicWay(msgspec.Struct, kw_only=True, frozen=True):
    """A NIC that is nearest to a GPU."""

    nic: str
    kind: Annotated[PathKind, Meta(description="Of the way to it: pix, pxb, phb, node, sys.")]
    links: Annotated[list[str], Meta(description="source->target of each link on the way to it.")]


class GpuOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A GPU and its way out."""

    gpu: str
    nics: Annotated[
        list[NicWay],
        Meta(description="The nearest ones; several are equally near, and the first is counted."),
    ]
    ambiguous: Annotated[bool, Meta(description="Whether several NICs are equally near.")]
    equal_share_bytes_per_second: Annotated[
        _Rate | UnsetType,
        Meta(
            description="The least that an even split of each nominal capacity on its way out "
            "leaves it when all GPUs of the host send; neither a bound nor a prediction. Absent "
            "without a NIC."
        ),
    ] = UNSET


class CommonCapacityOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A capacity on the way out of several GPUs."""

    level: ShareLevel
    link: Annotated[str, Meta(description="source->target")]
    bandwidth_bytes_per_second: Annotated[_Rate, Meta(description="Nominal.")]
    effective_bytes_per_second: Annotated[
        _Rate | UnsetType, Meta(description="Absent where it is not known.")
    ] = UNSET
    gpus: list[str]
    equal_share_bytes_per_second: Annotated[
        _Rate, Meta(description="The nominal rate divided evenly among the GPUs.")
    ]


class OddityOut(msgspec.Struct, kw_only=True, frozen=True):
    """Something to look at."""

    code: OddityCode
    detail: Annotated[str, Meta(description="A sentence, for people.")]
    devices: list[str]


class HostGroup(msgspec.Struct, kw_only=True, frozen=True):
    """Hosts that are alike, told by one of them."""

    host: Annotated[str, Meta(description="The one whose devices are named here.")]
    hosts: Annotated[int, Meta(ge=1, description="How many are alike, this one included.")]
    names: Annotated[list[str], Meta(description=f"The first {MAX_LISTED_NAMES} of them.")]
    gpus: list[GpuOut]
    common: Annotated[
        list[CommonCapacityOut], Meta(description="What several of the GPUs go through.")
    ]
    oddities: list[OddityOut]


class UplinksOut(msgspec.Struct, kw_only=True, frozen=True):
    """Switches that are alike, and what they give to the tier above. Rates are of one switch."""

    switches: Annotated[int, Meta(ge=1, description="How many are alike.")]
    names: Annotated[list[str], Meta(description=f"The first {MAX_LISTED_NAMES} of them.")]
    tier: Annotated[int, Meta(ge=1, description="1 joins devices, 2 joins switches of tier 1.")]
    cables_below: Annotated[int, Meta(ge=1, description="Number of cables from below.")]
    cables_above: Annotated[int, Meta(ge=1, description="Number of cables to the tier above.")]
    below_bytes_per_second: Annotated[
        _Rate, Meta(description="What devices or switches below can send to it, nominal.")
    ]
    above_bytes_per_second: Annotated[
        _Rate, Meta(description="What it can send to the tier above, nominal.")
    ]
    oversubscription_ratio: Annotated[
        _Rate, Meta(description="below / above: more than 1 when not all of it can go on.")
    ]
    equal_share_bytes_per_second: Annotated[
        _Rate, Meta(description="What a cable below gets of it when all traffic goes up.")
    ]
    assumed: Annotated[bool, Meta(description="Whether a rate among these is an assumption.")]


class SharedReport(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Which GPUs go through the same NIC, PCIe link, host bridge, socket link and uplinks."""

    pins: Annotated[list[Pin], Meta(description="The topology at the revision that was used.")]
    host_groups: list[HostGroup]
    unlisted_host_groups: Annotated[
        int, Meta(ge=0, description="Further ones; `host` asks for the one of a host.")
    ]
    uplinks: list[UplinksOut]
    unlisted_uplinks: Annotated[int, Meta(ge=0, description="Further groups of switches.")]
    allocation: Annotated[
        AllocationOut | UnsetType,
        Meta(description="Absent when all GPUs send: `hosts` or `devices` choose some."),
    ] = UNSET
    assumptions: list[StatementOut]
    not_represented: list[StatementOut]


_ASSUMED = (
    StatementOut(
        code="nearest_nic",
        detail="each GPU sends through the NIC that is nearest by the links of the topology, and "
        "all GPUs send at once; libraries may choose otherwise",
    ),
    StatementOut(
        code="way_out",
        detail="capacities are those of the way out; full-duplex links have as much the other way",
    ),
    StatementOut(
        code="unplugged_nics",
        detail="a NIC that is plugged into nothing counts with its PCIe links only",
    ),
    StatementOut(
        code="uplinks_carry_all",
        detail="shares of uplinks are those when all traffic leaves the switch upwards",
    ),
)
_LEFT_OUT = (
    StatementOut(
        code="switches_inside",
        detail="what a PCIe switch or a CPU can forward in all; only its links are counted",
    ),
    StatementOut(code="host_memory", detail="traffic that is staged in the memory of the host"),
)


def shared_report(
    revision: Revision,
    expansion: Expansion,
    groups: Sequence[tuple[str, ...]],
    sharing: Sequence[HostSharing],
    uplinks: Sequence[Uplinks],
    allocation: Allocation | None,
) -> SharedReport:
    """What was found as it goes over the wire; `sharing` is of the first of each listed group."""
    return SharedReport(
        pins=[Pin(kind=revision.kind.value, reference=revision.reference, digest=revision.digest)],
        host_groups=[_group(names, shared) for names, shared in zip(groups, sharing, strict=False)],
        unlisted_host_groups=len(groups) - len(sharing),
        uplinks=[_uplinks(alike) for alike in uplinks[:MAX_LISTED_GROUPS]],
        unlisted_uplinks=max(len(uplinks) - MAX_LISTED_GROUPS, 0),
        allocation=(UNSET if allocation is None else allocation_out(expansion.cluster, allocation)),
        assumptions=[
            *_ASSUMED,
            *(StatementOut(code="topology", detail=text) for text in expansion.assumptions),
        ],
        not_represented=list(_LEFT_OUT),
    )


def _group(names: Sequence[str], shared: HostSharing) -> HostGroup:
    return HostGroup(
        host=shared.host,
        hosts=len(names),
        names=list(names[:MAX_LISTED_NAMES]),
        gpus=[_gpu(one) for one in shared.gpus],
        common=[_common(one) for one in shared.common],
        oddities=[_oddity(one, shared) for one in shared.oddities],
    )


def _gpu(one: GpuNics) -> GpuOut:
    return GpuOut(
        gpu=one.gpu,
        nics=[
            NicWay(nic=way.nic, kind=way.kind, links=[link.name for link in way.path.links])
            for way in one.nics
        ],
        ambiguous=one.is_ambiguous,
        equal_share_bytes_per_second=or_unset(one.equal_share_bytes_per_second),
    )


def _common(one: CommonCapacity) -> CommonCapacityOut:
    return CommonCapacityOut(
        level=one.level,
        link=one.link.resource,
        bandwidth_bytes_per_second=one.link.bandwidth_bytes_per_second,
        effective_bytes_per_second=or_unset(one.link.effective_bytes_per_second),
        gpus=list(one.gpus),
        equal_share_bytes_per_second=one.equal_share_bytes_per_second,
    )


def _oddity(oddity: Oddity, shared: HostSharing) -> OddityOut:
    kinds = dict.fromkeys(one.nics[0].kind.value for one in shared.gpus if one.nics)
    count = len(oddity.devices)
    detail = {
        OddityCode.AMBIGUOUS_NIC: f"{count} GPUs have several NICs that are equally near: which "
        "one is used does not follow from the wiring",
        OddityCode.CROSSES_SOCKETS: f"{count} GPUs reach their nearest NIC only over the link "
        "between sockets, which they share with all else that crosses it",
        OddityCode.IDLE_NIC: f"{count} NICs are nearest to no GPU: they add nothing to what the "
        "GPUs can send while each uses its nearest one",
        OddityCode.MIXED_DISTANCES: "the GPUs are not equally near to their NICs "
        f"({', '.join(kinds)}): transfers that wait for the slowest do so at its rate, and ways "
        "over a CPU may slow each other down",
        OddityCode.NO_NIC: f"{count} GPUs reach no NIC inside their host",
    }[oddity.code]
    return OddityOut(code=oddity.code, detail=detail, devices=list(oddity.devices))


def _uplinks(alike: Uplinks) -> UplinksOut:
    return UplinksOut(
        switches=len(alike.switches),
        names=list(alike.switches[:MAX_LISTED_NAMES]),
        tier=alike.tier,
        cables_below=alike.cables_below,
        cables_above=alike.cables_above,
        below_bytes_per_second=alike.below_bytes_per_second,
        above_bytes_per_second=alike.above_bytes_per_second,
        oversubscription_ratio=alike.oversubscription_ratio,
        equal_share_bytes_per_second=alike.equal_share_bytes_per_second,
        assumed=alike.is_assumed,
    )
