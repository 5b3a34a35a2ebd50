"""Which parts of a fabric its picture shows: hosts that are alike as one, long rows cut short."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from service.core.topology.cluster import Cluster, Link, VertexKind
from service.core.topology.index import index_of
from service.core.topology.tiers import switch_tiers

__all__ = ["FabricView", "HostItem", "SwitchRow", "view_fabric"]

Thing = TypeVar("Thing")

_MAX_SINGLE_HOSTS = 12
_MAX_ITEMS = 12
_MAX_SWITCHES = {1: 48}
_MAX_UPPER_SWITCHES = 16


@dataclass(frozen=True, slots=True)
class HostItem:
    """A host, or hosts with as many devices that are plugged into the same switches.

    `plugs` has the links of all of them in both directions by the switch they lead to.
    """

    hosts: tuple[str, ...]
    gpus: int
    nics: int
    plugs: Mapping[str, tuple[Link, ...]]


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """The switches of a tier that are shown, and how many are not."""

    tier: int
    shown: tuple[str, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class FabricView:
    """The items of a picture from the hosts up.

    `trunks` are the links between shown switches of different tiers, both directions together.
    `peers` are those between shown switches of one tier. `domains` are NVSwitches outside hosts,
    `routers` counts those of the accelerators' own network. `not_drawn` says in words what is left
    out beside these.
    """

    items: tuple[HostItem, ...]
    hidden_hosts: int
    rows: tuple[SwitchRow, ...]
    domains: tuple[str, ...]
    trunks: Mapping[tuple[str, str], tuple[Link, ...]]
    peers: Mapping[tuple[str, str], tuple[Link, ...]]
    routers: int
    not_drawn: tuple[str, ...]


def view_fabric(cluster: Cluster, important: Collection[str] = ()) -> FabricView:
    """What to draw; `important` vertices (those of a path) are shown whatever is cut short."""
    wanted = frozenset(important)
    tiers = switch_tiers(cluster)
    singles = {cluster.vertices[name].host for name in wanted}
    items = _items(cluster, tiers, singles)
    shown = _fitting(items, tiers, singles)
    domains = tuple(
        name
        for name in dict.fromkeys(far for item in shown for far in item.plugs)
        if name not in tiers
    )
    rows: list[SwitchRow] = []
    visible = dict.fromkeys(far for item in shown for far in item.plugs if far in tiers)
    for tier in range(1, 1 + max(tiers.values(), default=0)):
        of_tier = [name for name, number in tiers.items() if number == tier]
        # First those that what is shown below is joined to.
        first = [name for name in visible if tiers[name] == tier]
        ordered = list(dict.fromkeys([*first, *of_tier])) if tier > 1 else first
        most = _MAX_SWITCHES.get(tier, _MAX_UPPER_SWITCHES)
        kept = _cut(ordered, most, lambda name: name in wanted)
        rows.append(SwitchRow(tier, tuple(kept), len(of_tier) - len(kept)))
        for name in kept:
            for link in index_of(cluster).leaving[name]:
                if tiers.get(link.target, 0) > tier:
                    visible.setdefault(link.target)
    drawn = dict.fromkeys(name for row in rows for name in row.shown)
    between = _between(cluster, tiers, drawn)

    def is_level(ends: tuple[str, str]) -> bool:
        return tiers[ends[0]] == tiers[ends[1]]

    return FabricView(
        items=tuple(shown),
        hidden_hosts=len(cluster.hosts) - sum(len(item.hosts) for item in shown),
        rows=tuple(rows),
        domains=domains,
        trunks={ends: links for ends, links in between.items() if not is_level(ends)},
        peers={ends: links for ends, links in between.items() if is_level(ends)},
        routers=sum(one.kind is VertexKind.ROUTER for one in cluster.vertices.values()),
        not_drawn=tuple(_left_out(cluster, tiers, drawn)),
    )


def _fitting(
    items: Sequence[HostItem], tiers: Mapping[str, int], singles: Collection[str | None]
) -> list[HostItem]:
    """As many items as there is room for, and only as many as there is for their leaves."""

    def is_wanted(item: HostItem) -> bool:
        return any(host in singles for host in item.hosts)

    kept = _cut(items, _MAX_ITEMS, is_wanted)
    leaves: set[str] = set()
    fitting: set[int] = set()
    for number in sorted(range(len(kept)), key=lambda number: not is_wanted(kept[number])):
        more = leaves | {far for far in kept[number].plugs if far in tiers}
        if len(more) <= _MAX_SWITCHES[1] or not fitting:
            fitting.add(number)
            leaves = more
    return [item for number, item in enumerate(kept) if number in fitting]


def _cut(things: Sequence[Thing], most: int, is_wanted: Callable[[Thing], bool]) -> list[Thing]:
    """The first ones in their order, and those that are wanted."""
    if len(things) <= most:
        return list(things)
    wanted = [number for number, thing in enumerate(things) if is_wanted(thing)]
    chosen = set(wanted[:most])
    for number in range(len(things)):
        if len(chosen) >= most:
            break
        chosen.add(number)
    return [things[number] for number in sorted(chosen)]


def _items(
    cluster: Cluster, tiers: Mapping[str, int], singles: Collection[str | None]
) -> list[HostItem]:
    index = index_of(cluster)
    plugs: dict[str, dict[str, list[Link]]] = {host: {} for host in index.members}
    for link in cluster.links.values():
        for end, far in ((link.source, link.target), (link.target, link.source)):
            host = cluster.vertices[end].host
            outside = cluster.vertices[far]
            is_plug = far in tiers or outside.kind is VertexKind.NVSWITCH
            if host is not None and outside.host is None and is_plug:
                plugs[host].setdefault(far, []).append(link)
    groups: dict[Hashable, list[str]] = {}
    several = len(plugs) > _MAX_SINGLE_HOSTS
    for host, ends in plugs.items():
        counts = tuple(len(index.names(host, kind)) for kind in (VertexKind.GPU, VertexKind.NIC))
        key: Hashable = (frozenset(ends), counts)
        groups.setdefault(key if several and host not in singles else host, []).append(host)
    return [
        HostItem(
            hosts=tuple(hosts),
            gpus=len(index.names(hosts[0], VertexKind.GPU)),
            nics=len(index.names(hosts[0], VertexKind.NIC)),
            plugs={
                far: tuple(link for host in hosts for link in plugs[host][far])
                for far in plugs[hosts[0]]
            },
        )
        for hosts in groups.values()
    ]


def _between(
    cluster: Cluster, tiers: Mapping[str, int], drawn: Collection[str]
) -> dict[tuple[str, str], tuple[Link, ...]]:
    """The links between switches, both directions together, by the lower one and the other."""
    found: dict[tuple[str, str], list[Link]] = {}
    for name in drawn:
        for link in index_of(cluster).leaving[name]:
            if link.target in drawn:
                low, high = sorted((name, link.target), key=lambda end: (tiers[end], end))
                found.setdefault((low, high), []).append(link)
    return {pair: tuple(links) for pair, links in sorted(found.items())}


def _left_out(cluster: Cluster, tiers: Mapping[str, int], drawn: Collection[str]) -> Iterable[str]:
    within = direct = 0
    for link in cluster.links.values():
        ends = cluster.vertices[link.source], cluster.vertices[link.target]
        if VertexKind.ROUTER in (ends[0].kind, ends[1].kind):
            continue
        if all(end.host is None for end in ends):
            is_shown = link.source in drawn and link.target in drawn
            within += not is_shown and tiers.get(link.source) == tiers.get(link.target)
        elif None not in (ends[0].host, ends[1].host):
            direct += ends[0].host != ends[1].host
    if within:
        yield f"{within} directed links between switches of one tier"
    if direct:
        yield f"{direct} directed links straight from host to host"
    apart = sum(
        vertex.host is None
        and name not in tiers
        and vertex.kind not in (VertexKind.NVSWITCH, VertexKind.ROUTER)
        for name, vertex in cluster.vertices.items()
    )
    if apart:
        yield f"{apart} switches that no device is joined to"
