"""How far the switches of a fabric stand from the devices, whatever they are called."""

from collections.abc import Mapping
from functools import lru_cache

from service.core.topology.cluster import Cluster, LinkKind, VertexKind

__all__ = ["switch_tiers"]


@lru_cache(maxsize=16)
def switch_tiers(cluster: Cluster) -> Mapping[str, int]:
    """The tier of each switch outside hosts: 1 joins devices, 2 joins tier 1 to others, and so on.

    A switch that nothing joins to a device has no tier. NVLinks and links of routers do not count,
    so that the accelerators' own network, which is no fabric, has none either.
    """
    above: dict[str, list[str]] = {}
    nearest: dict[str, None] = {}
    for link in cluster.links.values():
        ends = cluster.vertices[link.source], cluster.vertices[link.target]
        if link.kind is LinkKind.NVLINK or VertexKind.ROUTER in (ends[0].kind, ends[1].kind):
            continue
        outside = [end.host is None for end in ends]
        if all(outside):
            above.setdefault(link.source, []).append(link.target)
            above.setdefault(link.target, []).append(link.source)
        elif any(outside):
            nearest[link.source if outside[0] else link.target] = None
    tiers: dict[str, int] = {}
    found, tier = list(nearest), 1
    while found:
        tiers |= dict.fromkeys(found, tier)
        beyond = (far for near in found for far in above.get(near, ()))
        found = [far for far in dict.fromkeys(beyond) if far not in tiers]
        tier += 1
    return tiers
