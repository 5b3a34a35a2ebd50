"""How far the switches of a fabric stand from the devices, whatever they are called."""

from collections.abc import Mapping
from functools import lru_cache

from service.core.topology.cluster import Cluster, LinkKind

__all__ = ["switch_tiers"]


@lru_cache(maxsize=16)
def switch_tiers(cluster: Cluster) -> Mapping[str, int]:
    """The tier of each switch outside hosts: 1 joins devices, 2 joins tier 1 to others, and so on.

    A switch that nothing joins to a device has no tier. NVLinks do not count, so that an NVSwitch
    of several hosts, which belongs to no fabric, has none either.
    """
    above: dict[str, list[str]] = {}
    nearest: dict[str, None] = {}
    for link in cluster.links.values():
        if link.kind is LinkKind.NVLINK:
            continue
        outside = [cluster.vertices[end].host is None for end in (link.source, link.target)]
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
