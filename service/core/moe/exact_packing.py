"""The best placement there is, for few experts: how many replicas of each, and where they stand.

Branch and bound over numbers of replicas and, for each of them, over ranks. Loads are whole numbers
multiplied so that every even division of one is whole too, so nothing is decided by rounding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

__all__ = ["ExactPacking", "exact_packing"]


@dataclass(frozen=True, slots=True)
class ExactPacking:
    """`by_rank` has the experts of each rank; None where nothing beats what was to be beaten.

    `proven` where no placement has a less busy rank than this one, or than what was to be beaten.
    """

    by_rank: tuple[tuple[int, ...], ...] | None
    proven: bool


def exact_packing(
    loads: Sequence[int], ranks: int, slots: int, *, beat: float, steps: int
) -> ExactPacking:
    """Experts with `loads` in at most `slots` of `ranks`, none with more than its share of these.

    A replicated expert's load divides evenly, and it stands on a rank once. What is looked for has
    a busiest rank of less than `beat`; after so many `steps` the search ends with what it has.
    """
    search = _Search(loads, ranks, slots, beat, steps)
    search.run()
    return ExactPacking(search.best, search.steps > 0)


class _Search:
    def __init__(
        self, loads: Sequence[int], ranks: int, slots: int, beat: float, steps: int
    ) -> None:
        self.order = sorted(range(len(loads)), key=lambda expert: (-loads[expert], expert))
        self.ranks, self.slots, self.cap = ranks, slots, -(-slots // ranks)
        self.most_replicas = min(ranks, slots - len(loads) + 1)
        scale = lcm(*range(1, self.most_replicas + 1))
        self.loads = [loads[expert] * scale for expert in self.order]
        # The least whole number that is no less: below it is below what is to be beaten.
        self.limit = -int(-(beat * scale) // 1)
        self.mean = -(-sum(self.loads) // ranks)
        self.steps = steps
        self.best: tuple[tuple[int, ...], ...] | None = None

    def run(self) -> None:
        for replicas in self._replications(0, self.slots - len(self.loads)):
            self._pack(replicas)
            if self.steps <= 0 or self.limit <= self.mean:
                return

    def _replications(self, place: int, extra: int) -> Iterator[tuple[int, ...]]:
        """Numbers of replicas of the experts from `place` on, no replica above the limit."""
        if place == len(self.loads):
            yield ()
            return
        for more in range(min(extra, self.most_replicas - 1) + 1):
            self.steps -= 1
            if self.steps <= 0:
                return
            if self.loads[place] // (1 + more) >= self.limit:
                continue
            if self._needed(place + 1) > extra - more:
                return
            for rest in self._replications(place + 1, extra - more):
                # The limit may have been lowered since.
                if self.loads[place] // (1 + more) >= self.limit:
                    break
                yield (1 + more, *rest)

    def _needed(self, place: int) -> int:
        """More slots that the experts from `place` on need for every replica to be below it."""
        if self.limit <= 0:
            return self.slots
        needed = 0
        for load in self.loads[place:]:
            if load < self.limit:
                break
            needed += load // self.limit
        return needed

    def _pack(self, replicas: tuple[int, ...]) -> None:
        """Improves on the limit as far as these numbers of replicas allow."""
        items = sorted(
            (
                (load // number, place)
                for place, (load, number) in enumerate(zip(self.loads, replicas, strict=True))
                for _ in range(number)
            ),
            key=lambda item: (-item[0], item[1]),
        )
        left = [0] * (len(items) + 1)
        for number in reversed(range(len(items))):
            left[number] = left[number + 1] + items[number][0]
        held: list[list[int]] = [[] for _ in range(self.ranks)]
        self._descend(items, left, 0, [0] * self.ranks, held, (0, 0))

    def _descend(
        self,
        items: list[tuple[int, int]],
        left: list[int],
        number: int,
        sums: list[int],
        held: list[list[int]],
        after: tuple[int, int],
    ) -> None:
        """Item `number` on each rank; the one before went to a rank that was in state `after`."""
        self.steps -= 1
        if self.steps <= 0:
            return
        if number == len(items):
            self.limit = max(sums)
            self.best = tuple(tuple(sorted(self.order[one] for one in here)) for here in held)
            return
        free = sum(
            max(0, self.limit - 1 - total)
            for total, here in zip(sums, held, strict=True)
            if len(here) < self.cap
        )
        if free < left[number]:
            return
        load, expert = items[number]
        again = number > 0 and items[number - 1][1] == expert
        tried: set[tuple[int, int]] = set()
        for rank in sorted(range(self.ranks), key=lambda one: (sums[one], one)):
            state = sums[rank], len(held[rank])
            if sums[rank] + load >= self.limit or state in tried or state[1] == self.cap:
                continue
            # Replicas are alike, as are ranks of one state: so states are taken in their order.
            if again and (state < after or held[rank][-1:] == [expert]):
                continue
            tried.add(state)
            sums[rank] += load
            held[rank].append(expert)
            self._descend(items, left, number + 1, sums, held, state)
            held[rank].pop()
            sums[rank] -= load
            if self.steps <= 0 or self.limit <= self.mean:
                return
