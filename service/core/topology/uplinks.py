"""What the switches of a fabric take from below over what they give to the tier above."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum

from service.core.topology.cluster import Cluster, Link
from service.core.topology.index import index_of
from service.core.topology.tiers import switch_tiers

__all__ = ["Uplinks", "uplinks_by_likeness"]


@dataclass(frozen=True, slots=True)
class Uplinks:
    """Switches that are alike: the same tier, cables and rates below and above.

    Rates are nominal, of one switch, in one direction: `below_bytes_per_second` what the devices
    or switches below can send to it, `above_bytes_per_second` what it can send on to the tier
    above. `is_assumed` says that a rate among them is an assumption.
    """

    switches: tuple[str, ...]
    tier: int
    cables_below: int
    cables_above: int
    below_bytes_per_second: float
    above_bytes_per_second: float
    is_assumed: bool

    @property
    def oversubscription_ratio(self) -> float:
        """How many times more may come from below than can go on."""
        return self.below_bytes_per_second / self.above_bytes_per_second

    @property
    def equal_share_bytes_per_second(self) -> float:
        """What can go on, divided evenly among the cables below."""
        return self.above_bytes_per_second / self.cables_below


def uplinks_by_likeness(
    cluster: Cluster, hosts: Collection[str] | None = None
) -> tuple[Uplinks, ...]:
    """Every switch with a link to a higher tier, those that are alike together, lower tiers first.

    With `hosts` only what these send counts below tier 1, and other switches there are left out.
    """
    return _all_uplinks(cluster) if hosts is None else _uplinks(cluster, hosts)


@lru_cache(maxsize=16)
def _all_uplinks(cluster: Cluster) -> tuple[Uplinks, ...]:
    """Those of all hosts, which all who ask for the same cluster share."""
    return _uplinks(cluster, None)


def _uplinks(cluster: Cluster, hosts: Collection[str] | None) -> tuple[Uplinks, ...]:
    tiers, leaving = switch_tiers(cluster), index_of(cluster).leaving
    below: dict[str, list[Link]] = {name: [] for name in tiers}
    for link in cluster.links.values():
        if link.target in below and _comes_from_below(cluster, tiers, link, hosts):
            below[link.target].append(link)
    alike: dict[Uplinks, list[str]] = {}
    for name, tier in tiers.items():
        above = [link for link in leaving[name] if tiers.get(link.target, 0) > tier]
        if not above or not below[name]:
            continue
        one = Uplinks(
            switches=(),
            tier=tier,
            cables_below=sum(link.lanes for link in below[name]),
            cables_above=sum(link.lanes for link in above),
            below_bytes_per_second=fsum(link.bandwidth_bytes_per_second for link in below[name]),
            above_bytes_per_second=fsum(link.bandwidth_bytes_per_second for link in above),
            is_assumed=any(link.bandwidth_assumed for link in (*below[name], *above)),
        )
        alike.setdefault(one, []).append(name)
    found = (replace(one, switches=tuple(names)) for one, names in alike.items())
    return tuple(sorted(found, key=lambda one: one.tier))


def _comes_from_below(
    cluster: Cluster, tiers: Mapping[str, int], link: Link, hosts: Collection[str] | None
) -> bool:
    host = cluster.vertices[link.source].host
    if host is None:
        return tiers.get(link.source, 0) < tiers[link.target] and link.source in tiers
    return hosts is None or host in hosts
