"""How much traffic has no way around a link: the dominators of a commodity's graph.

A link is unavoidable for a terminal when every route from the root passes it. The unavoidable ones
of all terminals form a tree, found by the iteration of Cooper, Harvey and Kennedy ("A Simple, Fast
Dominance Algorithm", 2001) with each link as a vertex of its own.
"""

from collections.abc import Mapping
from fractions import Fraction

from service.core.topology.flows.routes import FREE, Commodity

__all__ = ["unavoidable"]


def unavoidable(commodity: Commodity) -> Mapping[int, Fraction]:
    """Bytes of the commodity that must cross one link, by the kind of capacity it takes up.

    Links are counted that are links by themselves; where several of one kind are unavoidable their
    bytes are added up.
    """
    count = commodity.nodes
    onward: list[list[int]] = [[] for _ in range(count + len(commodity.tail))]
    before: list[list[int]] = [[] for _ in onward]
    ends = zip(commodity.tail.tolist(), commodity.head.tolist(), strict=True)
    for arc, (tail, head) in enumerate(ends):
        one, other = (head, tail) if commodity.inward else (tail, head)
        for near, far in ((one, count + arc), (count + arc, other)):
            onward[near].append(far)
            before[far].append(near)
    order = _reverse_postorder(onward, commodity.root)
    dominator = _dominators(before, order)
    carried = dict(zip(commodity.terminals.tolist(), commodity.amounts, strict=True))
    found: dict[int, Fraction] = {}
    for node in reversed(order):
        amount = carried.get(node)
        if not amount:
            continue
        if node >= count:
            kind = int(commodity.resource[node - count])
            if kind != FREE and commodity.single[node - count]:
                found[kind] = found.get(kind, Fraction(0)) + amount
        if node != commodity.root:
            above = dominator[node]
            carried[above] = carried.get(above, Fraction(0)) + amount
    return found


def _reverse_postorder(onward: list[list[int]], root: int) -> list[int]:
    finished: list[int] = []
    seen = {root}
    stack = [(root, iter(onward[root]))]
    while stack:
        node, following = stack[-1]
        for other in following:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(onward[other])))
                break
        else:
            finished.append(node)
            stack.pop()
    return finished[::-1]


def _dominators(before: list[list[int]], order: list[int]) -> dict[int, int]:
    """The nearest dominator of each vertex in reverse postorder."""
    place = {node: number for number, node in enumerate(order)}
    found = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [near for near in before[node] if near in found]
            nearest = known[0]
            for near in known[1:]:
                other = near
                while nearest != other:
                    while place[nearest] > place[other]:
                        nearest = found[nearest]
                    while place[other] > place[nearest]:
                        other = found[other]
            if found.get(node) != nearest:
                found[node] = nearest
                changed = True
    return found
