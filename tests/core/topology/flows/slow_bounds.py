"""Bounds added up again from the links of a cluster alone, as slowly as may be.

Shares no code with `service.core.topology.flows`: its own graph, its own rules of which way traffic
may go, exact fractions throughout.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from heapq import heappop, heappush

import networkx as nx

from service.core.topology.cluster import Cluster

__all__ = ["added_up", "crossing_capacity", "distances", "route_graph"]

Length = Mapping[str, int]


def route_graph(cluster: Cluster, source: str, forwarders: Iterable[str] = ()) -> "nx.DiGraph[str]":
    """All ways that traffic from one vertex may go, one node for each state it can be in.

    A state is where it is and, in a device, whether it came over NVLink. Nodes `to NAME` are where
    it may stop. With `forwarders` these pass on everything and no host is closed.
    """
    vertices, open_to = cluster.vertices, set(forwarders)
    home = vertices[source].host
    graph: nx.DiGraph[str] = nx.DiGraph()

    def is_narrow(name: str) -> bool:
        return vertices[name].kind.value == "gpu" and name not in open_to

    for (tail, head), link in cluster.links.items():
        foreign = vertices[tail].host not in (None, home)
        if not open_to and foreign and vertices[tail].host != vertices[head].host:
            continue
        by_nvlink = link.kind.value == "nvlink"
        arrival = f"{head} (narrow)" if is_narrow(head) and not by_nvlink else head
        departures = [tail]
        if is_narrow(tail) and by_nvlink:
            departures.append(f"{tail} (narrow)")
        for departure in departures:
            graph.add_edge(departure, arrival, link=link)
    graph.add_node(source)
    for name in vertices:
        for state in (name, f"{name} (narrow)"):
            if state in graph:
                graph.add_edge(state, f"to {name}", link=None)
    return graph


def distances(graph: "nx.DiGraph[str]", start: str, lengths: Length) -> dict[str, int]:
    """The least sum of lengths (by the name of a capacity) from a node to every other."""
    found: dict[str, int] = {}
    queue = [(0, start)]
    while queue:
        far, node = heappop(queue)
        if node in found:
            continue
        found[node] = far
        for other in graph.successors(node):
            link = graph.edges[node, other]["link"]
            heappush(queue, (far + (0 if link is None else lengths.get(link.resource, 0)), other))
    return found


def added_up(
    cluster: Cluster,
    demand: Mapping[tuple[str, str], Fraction],
    lengths: Length,
    forwarders: Iterable[str] = (),
) -> Fraction:
    """sum(bytes x distance) / sum(capacity x length): what those lengths prove."""
    taken = Fraction(0)
    for source in {one for one, _ in demand}:
        found = distances(route_graph(cluster, source, forwarders), source, lengths)
        for (one, other), amount in demand.items():
            if one == source and f"to {other}" in found:
                taken += amount * found[f"to {other}"]
    rates = {link.resource: link.bandwidth_bytes_per_second for link in cluster.links.values()}
    return taken / sum(Fraction(rates[name]) * length for name, length in lengths.items())


def crossing_capacity(cluster: Cluster, inside: set[str], *, out: bool) -> Fraction:
    """Bytes per second over the border of a set of vertices, one way."""
    crossed = {
        link.resource: Fraction(link.bandwidth_bytes_per_second)
        for (tail, head), link in cluster.links.items()
        if ((tail in inside) if out else (head in inside)) and (tail in inside) != (head in inside)
    }
    return sum(crossed.values(), Fraction(0))
