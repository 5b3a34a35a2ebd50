"""How far the switches of a fabric stand from the hosts, whatever they are called.

A switch with hosts is a leaf, and most others follow from that. A spine may have a host too, one
that manages the fabric, and is no leaf for it. What tells them apart is what else a switch is
joined to: a leaf with few hosts is joined to what other leaves are joined to, a spine to leaves.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache

from service.core.topology.cluster import Cluster, LinkKind, VertexKind

__all__ = ["fabric_tiers", "switch_tiers"]

# The lowest switch of another pod is four links away, by way of a core: what is nearer than that to
# a leaf and has no leaf beside it is above one.
_TO_ANOTHER_POD = 4
# Neighbours of neighbours that are looked at.
_MAX_LOOKS = 2_000_000


def fabric_tiers(
    hosts: Mapping[str, int], neighbours: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """The tier of each switch that a host can reach: 0 for leaves, else one above the nearest.

    `hosts` counts the hosts (or their cables) at each switch that has any, `neighbours` are the
    other switches that each is joined to, each once. Where so many switches have few hosts that
    comparing them would take long, all are leaves.
    """
    few = _with_few(hosts)
    looks = (len(neighbours[near]) for switch in few for near in neighbours.get(switch, ()))
    if sum(looks) > _MAX_LOOKS:
        few = {}
    leaves = {switch: 0 for switch in hosts if switch not in few}
    distances = _distances(leaves, neighbours)
    leaves |= {
        switch: 0
        for switch in few
        if not _is_above(switch, leaves, hosts, neighbours, distances.get(switch))
    }
    return _distances(leaves, neighbours)


def _with_few(hosts: Mapping[str, int]) -> dict[str, None]:
    """The switches with at most half the hosts of the one that the median host is at."""
    waiting = sum(hosts.values()) / 2
    usual = 0
    for count in sorted(hosts.values(), reverse=True):
        usual = count
        waiting -= count
        if waiting <= 0:
            break
    return {switch: None for switch, count in hosts.items() if 2 * count <= usual}


def _is_above(
    switch: str,
    leaves: Mapping[str, int],
    hosts: Mapping[str, int],
    neighbours: Mapping[str, Collection[str]],
    distance: int | None,
) -> bool:
    """Whether a switch with few hosts stands above `leaves`, at `distance` of the nearest."""
    around = set(neighbours.get(switch, ()))
    if distance is None or distance >= _TO_ANOTHER_POD:
        return False
    shared = Counter(far for near in around for far in neighbours[near] if far != switch)
    alike = [other for other, count in shared.items() if 2 * count >= len(around)]
    if any(other in leaves for other in alike):
        return False
    if distance == 1:
        return len(around & leaves.keys()) > 1
    return any(other not in hosts for other in alike)


def _distances(
    found: Mapping[str, int], neighbours: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """How many links each switch is away from the nearest of those that are found."""
    distances = dict(found)
    reached = list(found)
    for near in reached:  # grows while it is gone through
        for far in neighbours.get(near, ()):
            if far not in distances:
                distances[far] = distances[near] + 1
                reached.append(far)
    return distances


@lru_cache(maxsize=16)
def switch_tiers(cluster: Cluster) -> Mapping[str, int]:
    """The tier of each switch outside hosts: 1 joins devices, 2 joins tier 1 to others, and so on.

    A switch that nothing joins to a device has no tier. NVLinks and links of routers do not count,
    so that the accelerators' own network, which is no fabric, has none either.
    """
    above: dict[str, dict[str, None]] = {}
    nearest: dict[str, dict[str | None, None]] = {}
    for link in cluster.links.values():
        ends = cluster.vertices[link.source], cluster.vertices[link.target]
        if link.kind is LinkKind.NVLINK or VertexKind.ROUTER in (ends[0].kind, ends[1].kind):
            continue
        outside = [end.host is None for end in ends]
        if all(outside):
            above.setdefault(link.source, {})[link.target] = None
            above.setdefault(link.target, {})[link.source] = None
        elif any(outside):
            switch, host = ends if outside[0] else ends[::-1]
            nearest.setdefault(switch.name, {})[host.host] = None
    hosts = {switch: len(joined) for switch, joined in nearest.items()}
    return {switch: tier + 1 for switch, tier in fabric_tiers(hosts, above).items()}
