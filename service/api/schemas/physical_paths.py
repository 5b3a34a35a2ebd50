"""Wire types of physical paths."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.core.topology.paths import PhysicalPath
from service.formats.documents.fields import or_unset

__all__ = ["Hop", "PathOut", "path_fields"]

Unset = msgspec.UnsetType


class Hop(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One directed link of a path. The links of the topology say more of where a rate is from."""

    source: str
    target: str
    kind: Annotated[str, Meta(description="nvlink, pcie, host_bridge, socket, network, fabric")]
    bandwidth_bytes_per_second: Annotated[float, Meta(gt=0, description="Nominal, this direction.")]
    bandwidth_assumed: Annotated[
        bool, Meta(description="Whether nobody stated the nominal rate; absent where somebody did.")
    ] = False
    latency_seconds: (
        Annotated[float, Meta(ge=0, description="Typical; absent where it is unknown.")] | Unset
    ) = msgspec.UNSET


class PathOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A physical path between two devices."""

    hops: list[Hop]
    bottleneck: Annotated[
        str | Unset, Meta(description="The narrowest link; absent on an empty path.")
    ] = msgspec.UNSET
    bandwidth_bytes_per_second: Annotated[
        float | Unset, Meta(description="Nominal, of the bottleneck: what bounds use.")
    ] = msgspec.UNSET
    effective_bytes_per_second: Annotated[
        float | Unset, Meta(description="What predictions use; nominal where nothing is measured.")
    ] = msgspec.UNSET
    latency_floor_seconds: Annotated[float, Meta(ge=0, description="Guaranteed; used in bounds.")]
    latency_seconds: (
        Annotated[
            float,
            Meta(
                ge=0,
                description="Typical, of all links; absent where that of any is unknown. "
                "Predictions count the guaranteed floor of such a link.",
            ),
        ]
        | Unset
    ) = msgspec.UNSET
    links_without_latency: Annotated[
        int, Meta(ge=0, description="Links whose typical latency is unknown; absent when 0.")
    ] = 0
    links_without_effective_bandwidth: Annotated[
        int,
        Meta(
            ge=0,
            description="Links of which only the nominal rate is known, which predictions use; "
            "absent when 0.",
        ),
    ] = 0
    equal_cost_alternatives: Annotated[
        int, Meta(ge=0, description="Other allowed paths of equal distance and bandwidth.")
    ]


def path_fields(path: PhysicalPath) -> dict[str, Any]:
    """The fields of a `PathOut`."""
    return {
        "hops": [
            Hop(
                source=link.source,
                target=link.target,
                kind=link.kind.value,
                bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
                bandwidth_assumed=link.bandwidth_assumed,
                latency_seconds=or_unset(link.latency_seconds),
            )
            for link in path.links
        ],
        "bottleneck": msgspec.UNSET if path.bottleneck is None else path.bottleneck.name,
        "bandwidth_bytes_per_second": or_unset(path.bandwidth_bytes_per_second),
        "effective_bytes_per_second": or_unset(path.effective_bytes_per_second),
        "latency_floor_seconds": path.latency_floor_seconds,
        "latency_seconds": (msgspec.UNSET if path.links_without_latency else path.latency_seconds),
        "links_without_latency": path.links_without_latency,
        "links_without_effective_bandwidth": path.links_without_effective,
        "equal_cost_alternatives": path.equal_cost_alternatives,
    }
