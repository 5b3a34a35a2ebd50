"""Graphs of nodes and edges as planners write them: joined into layers in execution order.

Nodes that must share a device become one layer, and so does whatever lies on a cycle between such
layers: stages follow each other, so it could stand on no other stage.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

__all__ = ["layers_in_order"]


def layers_in_order(
    count: int, edges: Iterable[tuple[int, int]], together: Iterable[Sequence[int]]
) -> list[list[int]]:
    """Nodes 0 to `count` - 1 as layers, each a list of nodes ascending.

    An edge goes from a node to one that needs it. Nodes listed in one entry of `together` are in
    one layer. A layer stands after all that it needs, and otherwise keeps to the order of its first
    nodes.
    """
    first_of = _united(count, together)
    joined = [(first_of[source], first_of[target]) for source, target in edges]
    components = _components(count, joined)
    layers: dict[int, list[int]] = {}
    for node in range(count):
        layers.setdefault(components[first_of[node]], []).append(node)
    needs: dict[int, set[int]] = {layer: set() for layer in layers}
    for source, target in joined:
        if components[source] != components[target]:
            needs[components[source]].add(components[target])
    waits = dict.fromkeys(layers, 0)
    for targets in needs.values():
        for target in targets:
            waits[target] += 1
    free = [(layers[layer][0], layer) for layer, open_needs in waits.items() if not open_needs]
    heapify(free)
    order = []
    while free:
        _, layer = heappop(free)
        order.append(layers[layer])
        for target in needs[layer]:
            waits[target] -= 1
            if not waits[target]:
                heappush(free, (layers[target][0], target))
    return order


def _united(count: int, together: Iterable[Sequence[int]]) -> list[int]:
    """For each node the first one it must be with, through however many lists."""
    parent = list(range(count))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for nodes in together:
        for node in nodes:
            first, other = sorted((find(nodes[0]), find(node)))
            parent[other] = first
    return [find(node) for node in range(count)]


def _components(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """For each node the number of its strongly connected component (Kosaraju's two passes)."""
    forward: list[list[int]] = [[] for _ in range(count)]
    backward: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        forward[source].append(target)
        backward[target].append(source)
    finished = _finished(forward)
    component = [-1] * count
    for number, start in enumerate(reversed(finished)):
        if component[start] >= 0:
            continue
        waiting = [start]
        component[start] = number
        while waiting:
            for node in backward[waiting.pop()]:
                if component[node] < 0:
                    component[node] = number
                    waiting.append(node)
    return component


def _finished(forward: Sequence[Sequence[int]]) -> list[int]:
    """Nodes in the order in which a search depth first leaves them."""
    seen = [False] * len(forward)
    order = []
    for start in range(len(forward)):
        if seen[start]:
            continue
        seen[start] = True
        way = [(start, iter(forward[start]))]
        while way:
            node, following = way[-1]
            step = next((target for target in following if not seen[target]), None)
            if step is None:
                order.append(node)
                way.pop()
            else:
                seen[step] = True
                way.append((step, iter(forward[step])))
    return order
