"""Query parameters that choose a part of a topology."""

from typing import Annotated

from litestar.params import FromQuery
from msgspec import Meta

from service.api.schemas.allocations import AllocationIn, allocate
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.plans.allocation import Allocation
from service.core.topology.cluster import Cluster
from service.core.topology.index import index_of

__all__ = [
    "MAX_QUERY_TEXT",
    "AllocatedDevices",
    "AllocatedHosts",
    "OneHost",
    "allocated_at",
    "allocated_in_query",
    "check_host",
]

OneHost = FromQuery[
    Annotated[
        str, Meta(min_length=1, max_length=200, description="Only this host.", examples=["host0"])
    ]
    | None
]


# Of one parameter. The head of a request has a bound that all of them together keep, also where
# every character is written as an escape.
MAX_QUERY_TEXT = 3000

AllocatedHosts = FromQuery[
    Annotated[
        str,
        Meta(
            pattern=r"^[ -~]{1,3000}$(?!\n)",
            max_length=MAX_QUERY_TEXT,
            description="Only the GPUs of these hosts: a host list expression as in Slurm.",
            examples=["host[0-3,7]"],
        ),
    ]
    | None
]
AllocatedDevices = FromQuery[
    Annotated[
        str,
        Meta(
            pattern=r"^[ -:<-~]{1,127}(;[ -:<-~]{1,127}){0,511}$(?!\n)",
            max_length=MAX_QUERY_TEXT,
            description="Only these GPUs: names, patterns and lists as in `placement.devices` of a "
            "plan, with semicolons between.",
            examples=["host0/gpu*;host1/gpu[0-3]"],
        ),
    ]
    | None
]


def allocated_at(cluster: Cluster, asked: AllocationIn, path: Path) -> Allocation:
    """The allocation that is meant. Raises `InvalidInput`, paths below `path`."""
    try:
        return allocate(cluster, asked)
    except InvalidInput as refused:
        raise type(refused)([fault.under(*path) for fault in refused.faults]) from None


def allocated_in_query(
    cluster: Cluster, hosts: str | None, devices: str | None
) -> Allocation | None:
    """The allocation of the query, if it names one. Raises `InvalidInput` at the parameters."""
    if hosts is None and devices is None:
        return None
    if hosts is not None and devices is not None:
        detail = "give hosts or devices, not both"
        raise InvalidInput([Fault(FaultCode.EXCLUSIVE_FIELDS, ("devices",), detail)])
    asked = AllocationIn(hosts=hosts) if hosts else AllocationIn(devices=str(devices).split(";"))
    try:
        return allocate(cluster, asked)
    except InvalidInput as refused:
        # A parameter is one value: which of its entries is meant stands in the detail.
        raise type(refused)(
            [Fault(fault.code, fault.path[:1], fault.detail) for fault in refused.faults]
        ) from None


def check_host(cluster: Cluster, host: str) -> None:
    """Raises `InvalidInput` when the cluster has no such host."""
    if host not in index_of(cluster).members:
        example = next(iter(cluster.hosts), None)
        named = "" if example is None else f"; one of its hosts is {example!r}"
        detail = f"{host[:100]!r} is no host of this topology{named}"
        raise InvalidInput([Fault(FaultCode.UNKNOWN_NAME, ("host",), detail)])
