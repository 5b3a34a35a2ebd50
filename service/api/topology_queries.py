"""Query parameters that choose a part of a topology."""

from typing import Annotated

from litestar.params import FromQuery
from msgspec import Meta

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import Cluster
from service.core.topology.index import index_of

__all__ = ["OneHost", "check_host"]

OneHost = FromQuery[
    Annotated[
        str, Meta(min_length=1, max_length=200, description="Only this host.", examples=["host0"])
    ]
    | None
]


def check_host(cluster: Cluster, host: str) -> None:
    """Raises `InvalidInput` when the cluster has no such host."""
    if host not in index_of(cluster).members:
        example = next(iter(cluster.hosts), None)
        named = "" if example is None else f"; one of its hosts is {example!r}"
        detail = f"{host[:100]!r} is no host of this topology{named}"
        raise InvalidInput([Fault(FaultCode.UNKNOWN_NAME, ("host",), detail)])
