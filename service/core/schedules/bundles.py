"""Which links a message occupies and for how long: what the queues of link mode are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

__all__ = ["Bundles"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

# How many of the links with the same users a link is compared with: keeping more is no fault.
_MOST_COMPARED = 8


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Kinds of bundles. Many messages are of one kind, so this stays small.

    A bundle of kind b occupies link `link[e]` for `occupied[e]` picoseconds, for e in
    `offsets[b]:offsets[b+1]` (no link twice), and arrives `latency[b]` picoseconds after the last
    of these ends; without links, as long after it is ready. Links are numbered 0..`links`-1 and are
    directed: whoever shares a number waits for each other.
    """

    links: int
    offsets: Int64Array  # (kinds + 1,)
    link: Int32Array  # (entries,)
    occupied: Int64Array  # (entries,) ps
    latency: Int64Array  # (kinds,) ps

    @classmethod
    def of(
        cls, links: int, occupied: Sequence[Sequence[tuple[int, int]]], latency: Sequence[int]
    ) -> "Bundles":
        """From the (link, picoseconds) of each kind and its latency in picoseconds."""
        entries = [entry for kind in occupied for entry in kind]
        return cls(
            links,
            np.cumsum([0, *(len(kind) for kind in occupied)], dtype=np.int64),
            np.array([link for link, _ in entries], dtype=np.int32),
            np.array([time for _, time in entries], dtype=np.int64),
            np.array(latency, dtype=np.int64),
        )

    @property
    def kinds(self) -> int:
        """How many kinds there are."""
        return len(self.latency)

    @property
    def sizes(self) -> Int64Array:
        """(kinds,) how many links each occupies."""
        return np.diff(self.offsets)

    @property
    def alone(self) -> Int64Array:
        """(kinds,) picoseconds from ready to arrival when nobody else uses the links."""
        longest = np.zeros(self.kinds, dtype=np.int64)
        np.maximum.at(longest, np.repeat(np.arange(self.kinds), self.sizes), self.occupied)
        return longest + self.latency

    def entries(self, kind: int) -> list[tuple[int, int]]:
        """(link, picoseconds) of one kind."""
        own = slice(int(self.offsets[kind]), int(self.offsets[kind + 1]))
        return list(zip(self.link[own].tolist(), self.occupied[own].tolist(), strict=True))

    def without_hidden_links(self) -> "Bundles":
        """The same times from fewer links, for the kernel; links keep their numbers.

        Where every kind that occupies one link occupies another one too, for as long or longer, the
        first is never free later than the second, so it never decides when a bundle arrives. Of
        links that are occupied alike the one with the lowest number stays. A hundred replicas on
        links of their own come down to one.
        """
        columns: list[list[tuple[int, int]]] = [[] for _ in range(self.links)]
        for kind in range(self.kinds):
            for link, time in self.entries(kind):
                columns[link].append((kind, time))
        alike: dict[tuple[tuple[int, int], ...], int] = {}
        for number, column in enumerate(columns):
            if column:
                alike.setdefault(tuple(column), number)

        def users(column: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
            return tuple(kind for kind, _ in column)

        kept: set[int] = set()
        for _, group in groupby(sorted(alike, key=users), key=users):
            of_group: list[tuple[tuple[int, int], ...]] = []
            for found in sorted(group, key=lambda c: (-sum(time for _, time in c), alike[c])):
                if not any(_covers(longer, found) for longer in of_group[:_MOST_COMPARED]):
                    of_group.append(found)
            kept.update(alike[found] for found in of_group)
        return Bundles.of(
            self.links,
            [[e for e in self.entries(kind) if e[0] in kept] for kind in range(self.kinds)],
            self.latency.tolist(),
        )

    def extended(self, scaled: Sequence[tuple[int, int]]) -> "Bundles":
        """With further kinds: each like one there is, (kind, picoseconds), taking so long alone.

        Occupied times and latency change in proportion; what took no time gets a latency.
        """
        alone = self.alone
        further = []
        for kind, time in scaled:
            before = int(alone[kind])
            parts = {
                link: part * time // before if before else 0 for link, part in self.entries(kind)
            }
            further.append((parts, time))
        return self._with(further)

    def joined(self, pairs: Sequence[tuple[int, int, int]]) -> "Bundles":
        """With further kinds: what two have together on each link, taking so long alone.

        Each pair is (kind or -1, kind or -1, picoseconds). Where links are occupied for longer than
        these picoseconds it takes that.
        """
        further = []
        for first, second, time in pairs:
            parts: dict[int, int] = {}
            for kind in (first, second):
                for link, part in self.entries(kind) if kind >= 0 else ():
                    parts[link] = parts.get(link, 0) + part
            further.append((parts, time))
        return self._with(further)

    def _with(self, further: Sequence[tuple[dict[int, int], int]]) -> "Bundles":
        """With kinds that occupy links so long and take so long alone, or as long as links do."""
        if not further:
            return self
        added = Bundles.of(
            self.links,
            [list(parts.items()) for parts, _ in further],
            [max(0, time - max(parts.values(), default=0)) for parts, time in further],
        )
        return Bundles(
            self.links,
            np.concatenate((self.offsets, self.offsets[-1] + added.offsets[1:])),
            np.concatenate((self.link, added.link)),
            np.concatenate((self.occupied, added.occupied)),
            np.concatenate((self.latency, added.latency)),
        )


def _covers(longer: tuple[tuple[int, int], ...], column: tuple[tuple[int, int], ...]) -> bool:
    """Whether each kind occupies the first of two links at least as long as the second."""
    return all(one >= other for (_, one), (_, other) in zip(longer, column, strict=True))
