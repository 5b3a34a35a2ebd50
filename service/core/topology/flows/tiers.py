"""The parts of a network within each other: hosts, NVLink domains, leaves, pods and upwards."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.network import NO_HOST, Network
from service.core.topology.tiers import switch_tiers

__all__ = ["components", "levels", "nested_parts"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]

_NO_PART = -1


def components(network: Network, joined: BoolArray, within: Int32Array) -> Int32Array:
    """(V,) numbers of the parts that the links `joined` (E,) make of the parts `within` (V,).

    Vertices with one number in `within` stay together; a negative one is a vertex that no part has
    unless a link joins it. Numbers are those of the first vertex of each part; -1 for vertices that
    are in none.
    """
    above = list(range(network.vertex_count))

    def top(vertex: int) -> int:
        while above[vertex] != vertex:
            above[vertex] = above[above[vertex]]
            vertex = above[vertex]
        return vertex

    def join(one: int, other: int) -> None:
        one, other = top(one), top(other)
        above[max(one, other)] = min(one, other)

    inside = within >= 0
    first: dict[int, int] = {}
    for vertex in np.flatnonzero(inside).tolist():
        join(first.setdefault(int(within[vertex]), vertex), vertex)
    touched = inside.copy()
    for link in np.flatnonzero(joined).tolist():
        tail, head = int(network.tail[link]), int(network.head[link])
        join(tail, head)
        touched[tail] = touched[head] = True
    found = np.full(network.vertex_count, _NO_PART, dtype=np.int32)
    for vertex in np.flatnonzero(touched).tolist():
        found[vertex] = top(vertex)
    return found


def levels(network: Network) -> Iterator[Int32Array]:
    """(V,) the parts of each level from the inside out: hosts, NVLink domains, leaves, pods, ..."""
    part = network.host
    yield part
    part = components(network, network.is_nvlink, part)
    yield part
    tiers = switch_tiers(network.cluster)
    unjoined = max(tiers.values(), default=0) + 1
    tier = np.array(
        [
            0 if host != NO_HOST else tiers.get(name, unjoined)
            for name, host in zip(network.names, network.host.tolist(), strict=True)
        ]
    )
    for height in range(1, unjoined):
        low = tier <= height
        part = components(network, low[network.tail] & low[network.head], part)
        yield part


def nested_parts(network: Network) -> list[Any]:
    """The whole network as a list of vertices and of lists like it, in the order of the cluster.

    A part with one child alone is that child.
    """
    # What the levels so far have made, by the number of its first vertex.
    made: dict[int, Any] = {vertex: vertex for vertex in range(network.vertex_count)}
    everything = np.zeros(network.vertex_count, dtype=np.int32)
    for part in (*levels(network), everything):
        labels = part.tolist()
        grouped: dict[tuple[bool, int], list[int]] = {}
        for first in made:
            alone = labels[first] < 0
            grouped.setdefault((alone, first if alone else labels[first]), []).append(first)
        made = {
            firsts[0]: made[firsts[0]] if len(firsts) == 1 else [made[first] for first in firsts]
            for firsts in grouped.values()
        }
    (whole,) = made.values()
    return whole if isinstance(whole, list) else [whole]
