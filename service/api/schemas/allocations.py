"""Wire types of an allocation, and what can cross its middle."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.answers import StatementOut
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.plans import allocation as allocations
from service.core.plans.allocation import Allocation
from service.core.topology.bisection import Bisection, device_bisection, host_bisection
from service.core.topology.cluster import Cluster
from service.formats.rank_files import read_rank_file

__all__ = [
    "AllocationIn",
    "AllocationOut",
    "BisectionOut",
    "allocate",
    "allocation_assumptions",
    "allocation_out",
    "bisection_out",
]

_MOST_NAMES = 32


class AllocationIn(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The part of the cluster that a job has: exactly one of the fields is given."""

    hosts: Annotated[
        Annotated[str, Meta(min_length=1, max_length=65_536)] | UnsetType,
        Meta(
            description="A host list expression as Slurm writes them: all GPUs of these hosts.",
            examples=["host[0-3,7]"],
        ),
    ] = UNSET
    devices: Annotated[
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=127)]],
            Meta(min_length=1, max_length=4096),
        ]
        | UnsetType,
        Meta(description="Names, patterns and lists, as in `placement.devices` of a plan."),
    ] = UNSET
    rank_file: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1_000_000)] | UnsetType,
        Meta(
            description="A rankfile of Open MPI (rank 0=host0 slot=0) or a machine file of MPICH "
            "or Open MPI (host0:8, host0 slots=8).",
        ),
    ] = UNSET


class BisectionOut(msgspec.Struct, kw_only=True, frozen=True):
    """The worst cut between two halves that was found."""

    bytes_per_second: Annotated[
        float,
        Meta(ge=0, description="All that crosses from `side` to the other half at most, nominal."),
    ]
    exact: Annotated[
        bool,
        Meta(
            description="Whether every parting was tried or stands for one that was. If not, the "
            "bisection is at most this."
        ),
    ]
    partings: Annotated[int, Meta(ge=1, description="How many were tried, each in both ways.")]
    side: Annotated[list[str], Meta(description=f"The first {_MOST_NAMES} of one half.")]
    side_size: Annotated[int, Meta(ge=1, description="Number of hosts or devices in that half.")]
    others: Annotated[int, Meta(ge=1, description="Number of those in the other half.")]
    crossing: Annotated[
        list[str],
        Meta(description=f"The first {_MOST_NAMES} of the capacities that bind."),
    ]
    crossing_count: Annotated[int, Meta(ge=0, description="Number of capacities that bind.")]


class AllocationOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """An allocation in numbers."""

    hosts: Annotated[int, Meta(ge=1, description="Number of hosts with a device of it.")]
    devices: Annotated[int, Meta(ge=1, description="Number of accelerators.")]
    host_bisection: Annotated[
        BisectionOut | UnsetType,
        Meta(
            description="Between halves of its hosts, over every route that passes no other host. "
            "Absent with a single host, and where the links are too many."
        ),
    ] = UNSET
    device_bisection: Annotated[
        BisectionOut | UnsetType,
        Meta(
            description="Between halves of its accelerators; a host with some of both may be "
            "passed on the way. Absent with a single one, and where the links are too many."
        ),
    ] = UNSET


def allocate(cluster: Cluster, asked: AllocationIn) -> Allocation:
    """The devices that are meant. Raises `InvalidInput`, paths relative to the allocation."""
    given = [name for name in asked.__struct_fields__ if getattr(asked, name) is not UNSET]
    if len(given) != 1:
        code = FaultCode.EXCLUSIVE_FIELDS if given else FaultCode.MISSING_FIELD
        detail = "an allocation is given by exactly one of hosts, devices and rank_file"
        raise InvalidInput([Fault(code, (), detail)])
    if asked.hosts is not UNSET:
        return allocations.of_hosts(cluster, asked.hosts)
    if asked.devices is not UNSET:
        return allocations.of_devices(cluster, asked.devices)
    try:
        hosts = read_rank_file(str(asked.rank_file))
    except InvalidInput as refused:
        raise InvalidInput([_in_words(fault) for fault in refused.faults]) from None
    return allocations.of_ranks(cluster, hosts)


def _in_words(fault: Fault) -> Fault:
    """A fault in a line of a text that is one value of the request."""
    where = f"line {fault.path[1]}: " if fault.path else ""
    return Fault(fault.code, ("rank_file",), where + fault.detail)


def allocation_assumptions(allocation: Allocation | None) -> list[StatementOut]:
    """What the answer says of how the devices were found."""
    told = () if allocation is None else allocation.assumptions
    return [StatementOut(code="allocation", detail=detail) for detail in told]


def allocation_out(cluster: Cluster, allocation: Allocation) -> AllocationOut:
    """The allocation with its bisections, which take up to some seconds to find."""
    devices = allocation.devices
    return AllocationOut(
        hosts=len({cluster.vertices[name].host for name in devices}),
        devices=len(devices),
        host_bisection=bisection_out(host_bisection(cluster, devices)),
        device_bisection=bisection_out(device_bisection(cluster, devices)),
    )


def bisection_out(found: Bisection | None) -> BisectionOut | UnsetType:
    """The wire form; unset where there is none."""
    if found is None:
        return UNSET
    return BisectionOut(
        bytes_per_second=found.bytes_per_second,
        exact=found.is_exact,
        partings=found.partings,
        side=list(found.side[:_MOST_NAMES]),
        side_size=len(found.side),
        others=found.others,
        crossing=list(found.crossing[:_MOST_NAMES]),
        crossing_count=len(found.crossing),
    )
