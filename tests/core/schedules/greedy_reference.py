"""The schedules that are made by trying, told again slowly: dictionaries, fractions, no kernels."""

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, inf

Half = tuple[str, int, int]  # F or I, stage, microbatch
Word = tuple[str, int, int]
Edge = tuple[int, int]


@dataclass
class Costs:
    """Of each stage, and of each edge there and back; memory changes of F and I."""

    edges: list[Edge]
    forward: list[int]
    half: list[int]
    weight: list[int]
    there: list[int]
    back: list[int]
    made: list[int] = field(default_factory=list)
    change: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.made = self.made or [1] * len(self.forward)
        self.change = self.change or [0] * len(self.forward)


@dataclass
class Filled:
    """What each rank runs, and how long that takes from 0, and the slowest rank by itself."""

    orders: list[list[Word]]
    makespan: int
    span: int


def equal_costs(stages: int) -> Costs:
    """A chain where everything takes 1 and transfers nothing."""
    edges = [(s, s + 1) for s in range(stages - 1)]
    nothing = [0] * len(edges)
    return Costs(edges, [1] * stages, [1] * stages, [1] * stages, nothing, nothing)


def filled(
    sequences: list[list[Half]],
    costs: Costs,
    limits: list[int],
    most_waiting: list[float],
    percents: tuple[float, float],
) -> Filled | None:
    """Weight halves where memory, their number or idle time asks for them; None if stuck."""
    ranks = range(len(sequences))
    ends: dict[Half, int] = {}
    orders: list[list[Word]] = [[] for _ in ranks]
    free, begin, kept = [0 for _ in ranks], [-1 for _ in ranks], [0 for _ in ranks]
    waiting: list[list[Half]] = [[] for _ in ranks]
    left = [list(sequence) for sequence in sequences]

    def run_weight(r: int) -> None:
        _, stage, microbatch = waiting[r].pop(0)
        orders[r].append(("W", stage, microbatch))
        free[r] += costs.weight[stage]
        kept[r] -= costs.made[stage] + costs.change[stage]

    progress = True
    while progress:
        progress = False
        for r in ranks:
            while left[r]:
                letter, stage, microbatch = left[r][0]
                needs = [
                    (("F", a, microbatch), late) if letter == "F" else (("I", b, microbatch), late)
                    for (a, b), late in zip(
                        costs.edges, costs.there if letter == "F" else costs.back, strict=True
                    )
                    if stage == (b if letter == "F" else a)
                ]
                if any(need not in ends for need, _ in needs):
                    break
                arrival = max((ends[need] + late for need, late in needs), default=0)
                change = costs.made[stage] if letter == "F" else costs.change[stage]
                forwards_left = any(op[0] == "F" for op in left[r])
                while waiting[r]:
                    gap = arrival - free[r]
                    weight = costs.weight[waiting[r][0][1]]
                    percent = percents[0] if forwards_left else percents[1]
                    idles = gap > 0 and gap >= (
                        inf if percent == inf else weight * int(percent) // 100
                    )
                    full = kept[r] + max(change, 0) > limits[r]
                    if not (full or idles or len(waiting[r]) > most_waiting[r]):
                        break
                    run_weight(r)
                if kept[r] + max(change, 0) > limits[r]:
                    return None
                start = max(free[r], arrival)
                begin[r] = start if begin[r] < 0 else begin[r]
                kept[r] += change
                free[r] = start + (costs.forward if letter == "F" else costs.half)[stage]
                ends[letter, stage, microbatch] = free[r]
                orders[r].append((letter, stage, microbatch))
                if letter == "I":
                    waiting[r].append(left[r][0])
                left[r].pop(0)
                progress = True
    if any(left):
        return None
    for r in ranks:
        while waiting[r]:
            run_weight(r)
    return Filled(orders, max(free), max(free[r] - begin[r] for r in ranks))


def zb_auto(ranks: int, microbatches: int, limit: int | None, costs: Costs) -> Filled:
    """Every warm-up with every way to fill; see the service's module for why these."""
    limits = [
        min(limit or ranks, microbatches) * max(a, a + b)
        for a, b in zip(costs.made, costs.change, strict=True)
    ]
    most = [
        max(n for n in range(1, microbatches + 1) if n == 1 or n * a + max(b, 0) <= full)
        for full, a, b in zip(limits, costs.made, costs.change, strict=True)
    ]
    start = [0] * ranks
    way_back = [0] * ranks
    for s in range(ranks):
        for (a, b), there, back in zip(costs.edges, costs.there, costs.back, strict=True):
            if b == s:
                start[s] = max(start[s], start[a] + costs.forward[a] + there)
                way_back[s] = max(way_back[s], way_back[a] + costs.half[a] + back)
    gradient = [start[s] + costs.forward[s] for s in range(ranks)]
    for s in reversed(range(ranks)):
        for (a, b), back in zip(costs.edges, costs.back, strict=True):
            if a == s:
                gradient[s] = max(gradient[s], gradient[b] + costs.half[b] + back)
    room = [
        Fraction(gradient[s] - start[s], costs.forward[s]) if costs.forward[s] else Fraction(1)
        for s in range(ranks)
    ]
    hops = [Fraction(ranks - s) for s in range(ranks)]
    by_hand = [[times * (ranks - 1 - r) + 1 for r in range(ranks)] for times in (1, 2)]
    ways = [room]
    for way, always in ((room, False), (hops, True)):
        part = min(Fraction(n) / r for n, r in zip(most, way, strict=True) if r)
        if part < 1 or always:
            ways.append([r * min(part, Fraction(1)) for r in way])
    quarters = [Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)]
    warm_ups = [
        *by_hand,
        *(
            rounded
            for way in ways
            for rounded in (
                *([floor(r + q) for r in way] for q in quarters),
                [ceil(r) for r in way],
            )
        ),
    ]
    lags: list[float] = [
        ceil(Fraction(start[s] + way_back[s], costs.weight[s])) if costs.weight[s] else inf
        for s in range(ranks)
    ]
    never: list[float] = [inf] * ranks
    fillings: list[tuple[list[float], tuple[float, float]]] = [
        *((never, (percent, 0)) for percent in (0, 25, 50, 100)),
        ([max(lag - 1, 0) for lag in lags], (100, 100)),
        (lags, (100, 0)),
    ]

    def run(
        warm_up: list[int], waiting: list[float], percents: tuple[float, float]
    ) -> list[Filled]:
        sequences: list[list[Half]] = []
        least = microbatches
        for r in range(ranks):
            least = min(least, most[r], max(1, warm_up[r]))
            order: list[Half] = [("F", r, m) for m in range(least)]
            for m in range(microbatches):
                order.append(("I", r, m))
                order += [("F", r, least + m)] if least + m < microbatches else []
            sequences.append(order)
        found = filled(sequences, costs, limits, waiting, percents)
        return [] if found is None else [found]

    every = [found for w in warm_ups for filling in fillings for found in run(w, *filling)]
    hand = [
        found
        for times, lag in ((1, 1), (2, 2), (1, 0))
        for found in run(by_hand[times - 1], [lag * r for r in range(ranks)], (inf, inf))
    ]
    shortest = min(found.makespan for found in every + hand)
    longest = min([shortest + shortest // 1000, *(found.makespan for found in hand)])
    good = [found for found in every + hand if found.makespan <= longest]
    return min(good, key=lambda found: (found.span, found.makespan))


def slots_of(schedule: str, ranks: int, r: int) -> list[int]:
    """When rank r runs F0, F1, I1, I0 of microbatch 0."""
    if schedule == "v_min":
        extra = 2 if ranks % 3 == 0 else 0
        return [
            r,
            2 * ranks - r - 1,
            2 * ranks + extra + r,
            4 * ranks + extra - r - 1,
        ]
    extra = 3 if ranks % 2 == 0 else 0
    return [
        2 * r,
        3 * ranks - r - 2,
        3 * ranks + extra + 2 * r - 1,
        6 * ranks + extra - r - 2,
    ]


def block_peak(schedule: str, ranks: int) -> int:
    """Counted over a long repetition, with the better of the two places of the weight halves."""
    peaks = []
    for r in range(ranks):
        f0, f1, i1, i0 = slots_of(schedule, ranks, r)
        left = sorted(set(range(6)) - {slot % 6 for slot in (f0, f1, i1, i0)})
        choices = []
        for own0, own1 in (left, reversed(left)):
            w0 = next(t for t in range(i0 + 1, i0 + 7) if t % 6 == own0)
            w1 = next(t for t in range(i1 + 1, i1 + 7) if t % 6 == own1)
            lives = [
                (f + 6 * m, w + 6 * m)
                for f, w in ((f0, w0), (f1, w1))
                for m in range(3 * ranks + 9)
            ]
            middle = range(8 * ranks + 24, 8 * ranks + 30)
            choices.append(max(sum(a <= t <= b for a, b in lives) for t in middle))
        peaks.append(min(choices))
    return max(peaks)


def listed(
    schedule: str,
    ranks: int,
    microbatches: int,
    haste: list[int],
    more: int,
    most_waiting: float,
) -> Filled | None:
    """Slot by slot, each rank takes what its block has first."""
    limit = block_peak(schedule, ranks)
    stages = [(r, 2 * ranks - 1 - r) for r in range(ranks)]
    slots = [slots_of(schedule, ranks, r) for r in range(ranks)]
    ends: dict[Half, int] = {}
    orders: list[list[Word]] = [[] for _ in range(ranks)]
    when: list[list[int]] = [[] for _ in range(ranks)]
    now = 0
    last = 2 * ranks - 1

    def count(r: int, letter: str, chunk: int) -> int:
        return sum(op[0] == letter and op[1] == stages[r][chunk] for op in orders[r])

    while any(len(order) < 6 * microbatches for order in orders):
        ran = False
        for r in range(ranks):
            ready: list[tuple[int, int, Half]] = []
            kept = [count(r, "F", chunk) - count(r, "W", chunk) for chunk in (0, 1)]
            for kind, (letter, chunk) in enumerate((("F", 0), ("F", 1), ("I", 1), ("I", 0))):
                m, stage = count(r, letter, chunk), stages[r][chunk]
                if m == microbatches:
                    continue
                needs = [("F", stage - 1, m)] if letter == "F" else [("F", stage, m)]
                needs += [("I", stage + 1, m)] if letter == "I" else []
                needs = [need for need in needs if 0 <= need[1] <= last]
                if any(ends.get(need, now + 1) > now for need in needs):
                    continue
                places = 2 if (letter, chunk) == ("F", 0) and not kept[1] else 1
                if letter == "F" and sum(kept) + places > limit:
                    continue
                under_way = ceil(Fraction(slots[r][3] + 2 - slots[r][0], 6))
                if (letter, chunk) == ("F", 0) and kept[0] >= under_way + more:
                    continue
                ready.append((slots[r][kind] + 6 * m - haste[kind], kind, (letter, stage, m)))
            waits: list[tuple[int, int, Half]] = []
            for kind, chunk in ((2, 1), (3, 0)):
                m = count(r, "W", chunk)
                if m < count(r, "I", chunk):
                    slot = slots[r][kind] + 6 * m - haste[kind]
                    waits.append((slot, kind, ("W", stages[r][chunk], m)))
            number = sum(count(r, "I", chunk) - count(r, "W", chunk) for chunk in (0, 1))
            if waits and (not ready or number > most_waiting):
                chosen = min(waits)[2]
            elif ready:
                chosen = min(ready)[2]
                ends[chosen] = now + 1
            else:
                continue
            orders[r].append(chosen)
            when[r].append(now)
            ran = True
        if not ran:
            return None
        now += 1
    return Filled(orders, now, max(times[-1] + 1 - times[0] for times in when))


def v_block(schedule: str, ranks: int, microbatches: int) -> Filled:
    """The block without its idle slots, and two ways to list it: the first of the shortest."""
    sequences: list[list[Half]] = []
    for r in range(ranks):
        words: list[tuple[int, Half]] = []
        for slot, (letter, stage) in zip(
            slots_of(schedule, ranks, r),
            (("F", r), ("F", 2 * ranks - 1 - r), ("I", 2 * ranks - 1 - r), ("I", r)),
            strict=True,
        ):
            words += [(slot + 6 * m, (letter, stage, m)) for m in range(microbatches)]
        sequences.append([word for _, word in sorted(words)])
    limits = [block_peak(schedule, ranks)] * ranks
    never: list[float] = [inf] * ranks
    found = [filled(sequences, equal_costs(2 * ranks), limits, never, (100, 100))]
    if 4 * microbatches >= ranks:
        found.append(listed(schedule, ranks, microbatches, [0, 3, 3, 12], 0, inf))
        found.append(listed(schedule, ranks, microbatches, [0, 0, 0, 3], 1, 1))
    return min((run for run in found if run is not None), key=lambda run: (run.makespan, run.span))
