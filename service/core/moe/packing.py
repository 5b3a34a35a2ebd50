"""Loads packed into places of limited number, none of which may hold two of a kind.

Slots of experts into ranks, groups of experts into hosts, ranks into hosts.
"""

from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

__all__ = ["most_exchanges", "pack"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

# Exchanges that are looked at, in memory at a time and in all, and rounds of them. Few rounds do:
# the largest first leaves little to better, the less the more there are.
EXCHANGES = 3_000_000
ROUNDS = 32
# A gain below this share of a load is rounding.
ROUNDING = 1e-12


def pack(loads: FloatArray, kinds: Int64Array, room: Int64Array) -> Int64Array:
    """(P,) the bin of each of (P,) loads, for bins with `room` (n,) for so many of them.

    Those of one kind, as (P,) `kinds` say, weigh the same. The largest first, each into the bin
    with the least load that has room and none of its kind; then the fullest bin exchanges with
    others as long as that lowers it. Two of a kind are in one bin only where bins of unequal room
    leave no other way.

    Raises ValueError where there is not room for all.
    """
    if len(loads) > int(room.sum()):
        raise ValueError(f"{len(loads)} loads have room for {int(room.sum())} only")
    packed = _Bins(loads, kinds, room)
    packed.place_all()
    packed.exchange()
    return packed.bins


def most_exchanges(loads: int, bins: int) -> int:
    """How many exchanges of so many loads are looked at before what was found is taken as it is."""
    return min(EXCHANGES, ROUNDS * _looked_at(-(-loads // bins), loads, bins))


def _looked_at(own: int, loads: int, bins: int) -> int:
    """In a round: each of the fullest bin against each other one, and against bins with room."""
    return own * (loads + bins)


class _Bins:
    def __init__(self, loads: FloatArray, kinds: Int64Array, room: Int64Array) -> None:
        self.loads = loads
        self.kinds = np.unique(kinds, return_inverse=True)[1].reshape(-1)
        self.room = room.astype(np.int64)
        self.bins = np.full(len(loads), -1, dtype=np.int64)
        self.sums = np.zeros(len(room))
        self.holds: BoolArray = np.zeros(
            (int(self.kinds.max(initial=-1)) + 1, len(room)), dtype=bool
        )

    def _put(self, item: int, number: int) -> None:
        self.bins[item] = number
        self.sums[number] += self.loads[item]
        self.room[number] -= 1
        self.holds[self.kinds[item], number] = True

    def _take(self, item: int) -> int:
        number = int(self.bins[item])
        self.bins[item] = -1
        self.sums[number] -= self.loads[item]
        self.room[number] += 1
        self.holds[self.kinds[item], number] = False
        return number

    def place_all(self) -> None:
        """All of a kind together go to as many bins: they weigh the same, and none gets two."""
        order = np.lexsort((np.arange(len(self.loads)), self.kinds, -self.loads))
        heap = [(0.0, number) for number in np.flatnonzero(self.room).tolist()]
        heapify(heap)
        begin = 0
        while begin < len(order):
            alike = [int(order[begin])]
            while begin + len(alike) < len(order):
                following = int(order[begin + len(alike)])
                if self.kinds[following] != self.kinds[alike[0]]:
                    break
                alike.append(following)
            begin += len(alike)
            used = []
            for item in alike:
                if heap:
                    used.append(heappop(heap)[1])
                    self._put(item, used[-1])
                else:
                    self._make_room(item)
            for number in used:
                if self.room[number]:
                    heappush(heap, (float(self.sums[number]), number))
            if any(self.bins[item] not in used for item in alike):
                heap = [(float(self.sums[n]), n) for n in np.flatnonzero(self.room).tolist()]
                heapify(heap)

    def _make_room(self, item: int) -> None:
        """All bins with room hold its kind: one from a full bin moves there, and makes place."""
        kind = self.kinds[item]
        roomy = int(np.flatnonzero(self.room)[0])
        for full in np.argsort(self.sums, kind="stable").tolist():
            if self.holds[kind, full]:
                continue
            inside = np.flatnonzero(self.bins == full)
            movable = inside[~self.holds[self.kinds[inside], roomy]]
            if len(movable):
                least = int(movable[np.argmin(self.loads[movable])])
                self._take(least)
                self._put(least, roomy)
                self._put(item, full)
                return
        self._put(item, roomy)

    def exchange(self) -> None:
        """Lowers the fullest bin, one exchange or move after the other, while that can be done."""
        left = EXCHANGES
        for _ in range(ROUNDS):
            fullest = int(np.argmax(self.sums))
            own = np.flatnonzero(self.bins == fullest)
            others = np.flatnonzero(self.bins != fullest)
            left -= _looked_at(len(own), len(self.loads), len(self.sums))
            if left < 0:
                return
            swap = self._best_swap(fullest, own, others)
            move = self._best_move(fullest, own)
            best, items = min(swap, move)
            if best >= self.sums[fullest] * (1 - ROUNDING):
                return
            mine, other = items
            if swap <= move:
                there = self._take(other)
                self._take(mine)
                self._put(other, fullest)
            else:
                self._take(mine)
                there = other
            self._put(mine, there)

    def _best_swap(
        self, fullest: int, own: Int64Array, others: Int64Array
    ) -> tuple[float, tuple[int, int]]:
        """The larger of both loads afterwards, and what to exchange with what."""
        if not len(own) or not len(others):
            return np.inf, (-1, -1)
        gain = self.loads[own][:, None] - self.loads[others]
        there = self.bins[others]
        after = np.maximum(self.sums[fullest] - gain, self.sums[there] + gain)
        allowed = ~self.holds[self.kinds[own]][:, there] & ~self.holds[self.kinds[others], fullest]
        return self._least(np.where(allowed, after, np.inf), own, others)

    def _best_move(self, fullest: int, own: Int64Array) -> tuple[float, tuple[int, int]]:
        roomy = np.flatnonzero(self.room)
        roomy = roomy[roomy != fullest]
        if not len(own) or not len(roomy):
            return np.inf, (-1, -1)
        gain = self.loads[own][:, None]
        after = np.maximum(self.sums[fullest] - gain, self.sums[roomy] + gain)
        return self._least(
            np.where(self.holds[self.kinds[own]][:, roomy], np.inf, after), own, roomy
        )

    @staticmethod
    def _least(
        after: FloatArray, rows: Int64Array, columns: Int64Array
    ) -> tuple[float, tuple[int, int]]:
        row, column = np.unravel_index(int(np.argmin(after)), after.shape)
        return float(after[row, column]), (int(rows[row]), int(columns[column]))
