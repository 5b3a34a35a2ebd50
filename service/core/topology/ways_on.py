"""From a graph of equally good ways on to the paths in it, vertices being numbers.

In such a graph every way from the source leads to the target.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Leg", "Onward", "follow", "walk"]

# For each vertex the vertices that are equally good next ones.
Onward = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Leg:
    """From one anchor (a vertex in a host, or an end) to the next, over switches between them.

    `choices` has the equally good next vertices of the leg's start and of each switch, in order.
    """

    end: int
    choices: Onward


def follow(
    onward: Onward, source: int, target: int, is_in_host: Callable[[int], bool]
) -> Iterator[Leg]:
    """Anchor by anchor, always to the next one of least name; between them all that is best."""
    vertex = source
    while vertex != target:
        before: dict[int, list[int]] = {}
        waiting = [vertex]
        while waiting:
            near = waiting.pop()
            for far in onward[near]:
                if far not in before and not is_in_host(far) and far != target:
                    waiting.append(far)
                before.setdefault(far, []).append(near)
        anchors = [far for far in before if is_in_host(far) or far == target]
        # A switch has no place in the sequence of names, so a path that ends there is first.
        end = min(anchors, key=lambda far: (is_in_host(far), far))
        choices: dict[int, list[int]] = {}
        waiting = [end]
        while waiting:
            far = waiting.pop()
            for near in before[far]:
                if near not in choices and near != vertex:
                    waiting.append(near)
                choices.setdefault(near, []).append(far)
        yield Leg(end, {near: _in_order(far, end) for near, far in choices.items()})
        vertex = end


def _in_order(vertices: Sequence[int], end: int) -> tuple[int, ...]:
    """Switches by name, then the way straight to the leg's end."""
    return tuple(sorted(vertices, key=lambda one: (one == end, one)))


def walk(onward: Onward, source: int, target: int) -> Iterator[tuple[int, ...]]:
    """Every path from one end to the other, in the order in which the ways on are listed."""
    path, ahead = [source], [iter(onward[source])]
    while ahead:
        vertex = next(ahead[-1], None)
        if vertex is None:
            ahead.pop()
            path.pop()
        elif vertex == target:
            yield (*path, target)
        else:
            path.append(vertex)
            ahead.append(iter(onward[vertex]))
