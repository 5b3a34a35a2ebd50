"""What an order that follows times and memory is made for: ratios, not a plan's own numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

__all__ = ["OrderCosts", "equal_costs"]

# So many bits are kept of the longest time: with the most operations a program may have, no sum of
# them leaves int64.
_MOST_TIME = 2**38
# An activation of more than this, times the microbatches, could leave int64.
_MOST_MEMORY = 2**38


@dataclass(frozen=True, slots=True)
class OrderCosts:
    """Times and memory of one microbatch on each stage and edge, in units of their own.

    `forward`, `backward_input` and `backward_weight` are times of each stage, the latencies those
    of each of `edges` (from a stage to a later one), all in one unit. `forward_memory` is what a
    forward adds to what its stage keeps, `input_memory` what the input half of the backward changes
    of that; the weight half frees the rest. Equal ratios are equal costs: make them with `of`.
    `taken` is the number of the one candidate that is taken, where what these costs are the means
    of says that it is the best; None leaves it to the costs.
    """

    edges: tuple[tuple[int, int], ...]
    forward: tuple[int, ...]
    backward_input: tuple[int, ...]
    backward_weight: tuple[int, ...]
    forward_latencies: tuple[int, ...]
    backward_latencies: tuple[int, ...]
    forward_memory: tuple[int, ...]
    input_memory: tuple[int, ...]
    taken: int | None = None

    @classmethod
    def of(
        cls,
        edges: Sequence[tuple[int, int]],
        times: tuple[Sequence[int], Sequence[int], Sequence[int]],
        latencies: tuple[Sequence[int], Sequence[int]],
        memory: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> "OrderCosts":
        """From picoseconds (forward, input and weight half; forward and backward latencies).

        `memory` is in bytes: what forwards add and what input halves change. Without it, and where
        a stage keeps nothing or too much to be counted in bytes, an activation counts as one and is
        kept until the weight half has run.
        """
        forward, halved, weight, there, back = _reduced((*times, *latencies))
        pairs = [(1, 0)] * len(forward)
        if memory is not None:
            pairs = [_memory_of(*pair) for pair in zip(*memory, strict=True)]
        return cls(
            edges=tuple(edges),
            forward=forward,
            backward_input=halved,
            backward_weight=weight,
            forward_latencies=there,
            backward_latencies=back,
            forward_memory=tuple(made for made, _ in pairs),
            input_memory=tuple(change for _, change in pairs),
        )


def equal_costs(stages: int) -> OrderCosts:
    """A chain of equal stages whose three operations take equally long, and free transfers."""
    edges = [(stage, stage + 1) for stage in range(stages - 1)]
    ones, zeros = (1,) * stages, (0,) * (stages - 1)
    return OrderCosts.of(edges, (ones, ones, ones), (zeros, zeros))


def _reduced(times: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Without a common factor, and rounded down where the ratios need more bits than are kept."""
    largest = max((time for of_kind in times for time in of_kind), default=0)
    if largest > _MOST_TIME:
        times = [[time * _MOST_TIME // largest for time in of_kind] for of_kind in times]
    common = gcd(*(time for of_kind in times for time in of_kind)) or 1
    return [tuple(time // common for time in of_kind) for of_kind in times]


def _memory_of(made: int, change: int) -> tuple[int, int]:
    """Each stage is held against its own limit only, so each has a unit of its own."""
    most = max(made, made + change)
    if not 0 < most <= _MOST_MEMORY:
        return 1, 0
    common = gcd(made, change)
    return made // common, change // common
