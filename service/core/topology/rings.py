"""In which orders rings go through a group of devices, so that every NIC of its hosts is used.

One ring leaves each host once, by one NIC. Libraries run a ring for each NIC instead, each with an
equal share of the bytes: within hosts its order is turned, so that it leaves by another one.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from service.core.topology.cluster import Vertex
from service.core.topology.paths import PathFinder, PhysicalPath, SearchBudget

__all__ = ["MAX_LINKS_SEARCHED", "by_host", "rings_by_nic"]

# Looked at to find the paths between hosts: about a second.
MAX_LINKS_SEARCHED = 100_000_000

_Device = TypeVar("_Device", bound=Hashable)


def by_host(devices: Iterable[_Device], hosts: Mapping[_Device, str | None]) -> list[list[_Device]]:
    """The devices of each host in order, hosts by their first device.

    Devices are names or numbers. What is in no host is one by itself.
    """
    of_host: dict[tuple[str | None, _Device | None], list[_Device]] = {}
    for device in devices:
        host = hosts.get(device)
        of_host.setdefault((host, device if host is None else None), []).append(device)
    return list(of_host.values())


def rings_by_nic(
    finder: PathFinder,
    devices: Sequence[str],
    vertices: Mapping[str, Vertex],
    budget: SearchBudget | None = None,
) -> tuple[tuple[str, ...], ...]:
    """Orders of as many rings as leave, and enter, no host by the same link: one for each NIC.

    Turns of the order within hosts are tried, the given one first; by which NIC one leaves follows
    from the pinned paths from its last device of each host to its first one of the next. One ring,
    as given, where the devices are in one host, a host has one of them or one NIC for all, some
    path is missing, or finding them is more than `MAX_LINKS_SEARCHED`. These are no more paths than
    devices. Raises what `budget` does.
    """
    hosts = {name: vertices[name].host for name in devices}
    groups = by_host(devices, hosts)
    turns = min(len(group) for group in groups)
    as_given = (tuple(devices),)
    if len(groups) < 2 or turns < 2:
        return as_given
    following = [*groups[1:], groups[0]]
    crossings = {
        turn: [
            (group[_start(group, turn, turns) - 1], after[_start(after, turn, turns)])
            for group, after in zip(groups, following, strict=True)
        ]
        for turn in (0, *range(turns - 1, 0, -1))
    }
    if finder.links_searched(chain.from_iterable(crossings.values())) > MAX_LINKS_SEARCHED:
        return as_given
    used: set[str] = set()
    found = []
    for turn, pairs in crossings.items():
        crossed: set[str] = set()
        for source, target in pairs:
            path = finder.path(source, target, budget)
            if path is None:
                return as_given
            crossed |= _borders(path, hosts[source], hosts[target], vertices)
        if used.isdisjoint(crossed):
            used |= crossed
            found.append(
                tuple(chain.from_iterable(_turned(group, turn, turns) for group in groups))
            )
    return tuple(found) if len(found) > 1 else as_given


def _start(group: Sequence[str], turn: int, turns: int) -> int:
    """Where the order of a host begins; hosts with more devices are turned by more."""
    return turn * len(group) // turns


def _turned(group: list[str], turn: int, turns: int) -> list[str]:
    start = _start(group, turn, turns)
    return group[start:] + group[:start]


def _borders(
    path: PhysicalPath, source: str | None, target: str | None, vertices: Mapping[str, Vertex]
) -> set[str]:
    """The capacities of the links by which a path leaves one host and enters the other."""
    out = [link for link in path.links if vertices[link.target].host != source]
    into = [link for link in path.links if vertices[link.source].host != target]
    return {out[0].resource, into[-1].resource}
