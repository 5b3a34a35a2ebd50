"""A slow reference: orders written down from the rules, run event by event from a queue of times.

Shares no code with the service beyond the names of the kinds.
"""

import heapq
import random
from dataclasses import dataclass, field
from functools import lru_cache

from tests.core.schedules.reference_orders import Word, rank_orders, shapes_of

Operation = tuple[str, int, int]  # letter, stage, microbatch
Edge = tuple[int, ...]  # source, target, and the direction unless it is 0
Crossing = tuple[int, bool, int]  # index of the edge, whether back, microbatch

BACKWARDS = ("B", "I", "W")


@dataclass
class Plan:
    """What is to be run: an order for each rank, dependencies by rule, times by stage and edge.

    A fused pair stands in an order as ("F&B", stage, microbatch) of its forward; `partner` names
    the (stage, microbatch) of its backward.
    """

    orders: list[list[Operation]]
    edges: list[Edge]
    recompute: str  # "none", "after_gradient" or "before_gradient"
    durations: dict[str, list[list[int]]]  # by letter, by stage, then by microbatch
    forward: list[list[int]] = field(default_factory=list)  # by edge, then by microbatch
    backward: list[list[int]] = field(default_factory=list)
    partner: dict[Operation, tuple[int, int]] = field(default_factory=dict)
    directions: int = 1
    untrained: frozenset[int] = frozenset()  # edges over which no gradient goes back
    chunks: int = 1
    group: int | None = None

    @property
    def stages(self) -> int:
        return len(self.durations["F"])

    @property
    def rank_of(self) -> dict[int, int]:
        """Of the stages in direction 0."""
        return {s: r for (s, d), r in self.homes.items() if d == 0}

    @property
    def homes(self) -> dict[tuple[int, int], int]:
        """The rank of each stage in each direction."""
        return {
            (s, m % self.directions): r
            for r, order in enumerate(self.orders)
            for op in order
            for _, s, m in self.parts(op)
        }

    def parts(self, operation: Operation) -> list[Operation]:
        """An operation itself, or the forward and the backward of a pair."""
        letter, stage, microbatch = operation
        if letter != "F&B":
            return [operation]
        return [("F", stage, microbatch), ("B", *self.partner[operation])]

    def all_needs(self) -> dict[Operation, list[tuple[Operation, int]]]:
        """What each operation waits for, and the latency of each."""
        latencies = (self.forward, self.backward)
        return {
            op: [
                (need, 0 if way is None else latencies[way[1]][way[0]][way[2]])
                for need, way in needs
            ]
            for op, needs in self.all_crossings().items()
        }

    def all_crossings(self) -> dict[Operation, list[tuple[Operation, Crossing | None]]]:
        """What each operation waits for, and what that crosses, if anything."""
        does = {part: op for order in self.orders for op in order for part in self.parts(op)}
        homes = self.homes

        def gradient_of(stage: int, microbatch: int) -> Operation:
            whole = ("B", stage, microbatch)
            return does[whole] if whole in does else does["I", stage, microbatch]

        def needs(part: Operation) -> list[tuple[Operation, Crossing | None]]:
            letter, stage, microbatch = part
            direction = microbatch % self.directions
            found: list[tuple[Operation, Crossing | None]] = []
            takes_gradient = "R" if self.recompute == "after_gradient" else "BI"
            for index, edge in enumerate(self.edges):
                source, target = edge[:2]
                if (edge[2] if len(edge) == 3 else 0) != direction:
                    continue
                crosses = homes[source, direction] != homes[target, direction]
                if letter == "F" and stage == target:
                    way = (index, False, microbatch) if crosses else None
                    found.append((does["F", source, microbatch], way))
                if letter in takes_gradient and stage == source and index not in self.untrained:
                    way = (index, True, microbatch) if crosses else None
                    found.append((gradient_of(target, microbatch), way))
            if letter in "RBI":
                found.append((does["F", stage, microbatch], None))
            if letter in "BI" and self.recompute != "none":
                found.append((("R", stage, microbatch), None))
            if letter == "W":
                found.append((("I", stage, microbatch), None))
            return found

        return {
            op: [need for part in self.parts(op) for need in needs(part)]
            for order in self.orders
            for op in order
        }

    def duration(self, operation: Operation) -> int:
        """By kind, stage and microbatch; of a pair the sum of its two, or a time of its own."""
        letter, stage, microbatch = operation
        if letter == "F&B" and letter not in self.durations:
            return sum(self.duration(part) for part in self.parts(operation))
        return self.durations[letter][stage][microbatch]


def simulate_by_events(
    plan: Plan, *, blocking: bool = False
) -> dict[Operation, tuple[int, int, int]]:
    """Start, end and transfer wait of every operation (golden/schedules/README defines it).

    With `blocking` a rank is held until the last of what it sends has arrived.
    """
    done: dict[Operation, tuple[int, int, int]] = {}
    position = [0] * len(plan.orders)
    free = [0] * len(plan.orders)
    needs = plan.all_needs()
    latencies = {0, *(late for hops in (*plan.forward, *plan.backward) for late in hops)}
    holds = dict.fromkeys(needs, 0)
    for found in needs.values() if blocking else ():
        for need, late in found:
            holds[need] = max(holds[need], late)
    times = [0]
    latest = -1
    while times:
        now = heapq.heappop(times)
        if now == latest:
            continue
        progress = True
        while progress:
            progress = False
            for rank, order in enumerate(plan.orders):
                if position[rank] == len(order) or free[rank] > now:
                    continue
                operation = order[position[rank]]
                if any(need not in done for need, _ in needs[operation]):
                    continue
                arrivals = [(done[need][1] + late, late) for need, late in needs[operation]]
                if any(arrival > now for arrival, _ in arrivals):
                    continue
                last = max((arrival for arrival, _ in arrivals), default=0)
                binding = min((late for arrival, late in arrivals if arrival == last), default=0)
                gap = now - free[rank] if position[rank] else 0
                end = now + plan.duration(operation)
                done[operation] = (now, end, min(gap, binding))
                free[rank] = end + holds[operation]
                position[rank] += 1
                for latency in latencies:
                    heapq.heappush(times, end + latency)
                progress = True
        latest = now
    stuck = [o[p] for o, p in zip(plan.orders, position, strict=True) if p < len(o)]
    if stuck:
        raise RuntimeError(f"stuck at {stuck}")
    return done


def random_edges(rng: random.Random, stages: int, directions: int = 1) -> list[Edge]:
    """The chain, or a random set of edges from lower to higher stages; the same both ways."""
    every = [(a, b) for b in range(stages) for a in range(b)]
    if rng.random() < 0.5 or not every:
        chosen = [(s, s + 1) for s in range(stages - 1)]
    else:
        chosen = rng.sample(every, rng.randint(0, min(len(every), 2 * stages)))
    other: list[Edge] = [(*edge, 1) for edge in chosen if directions == 2]
    return [*chosen, *other]


def random_times(
    rng: random.Random, rows: int, microbatches: int, largest: int, *, alike: bool
) -> list[list[int]]:
    """A row a stage or edge, with one time for all microbatches or one for each."""
    if alike:
        return [[rng.randint(0, largest)] * microbatches for _ in range(rows)]
    return [[rng.randint(0, largest) for _ in range(microbatches)] for _ in range(rows)]


def random_durations(
    rng: random.Random, stages: int, microbatches: int, largest: int
) -> dict[str, list[list[int]]]:
    """Every letter; a whole backward takes as long as its two halves. Half of them are uneven."""
    durations = {
        k: random_times(rng, stages, microbatches, largest, alike=rng.random() < 0.5)
        for k in "FIWR"
    }
    durations["B"] = [
        [i + w for i, w in zip(*rows, strict=True)]
        for rows in zip(durations["I"], durations["W"], strict=True)
    ]
    return durations


def random_hops(
    rng: random.Random, edges: int, microbatches: int, latest: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Latencies there and back."""
    alike = rng.random() < 0.5
    return (
        random_times(rng, edges, microbatches, latest, alike=alike),
        random_times(rng, edges, microbatches, latest, alike=alike),
    )


@lru_cache
def legal_shapes(schedule: str) -> list[tuple[int, int, int, int]]:
    """Small ones, the largest left to chance."""
    return shapes_of(schedule)


def random_plan(rng: random.Random, schedule: str, *, fused: bool = False) -> Plan:
    """Few ranks and microbatches, small times with zeros and many ties."""
    if schedule == "explicit":
        return random_legal_plan(rng)
    ranks, microbatches, chunks, group = rng.choice(legal_shapes(schedule))
    recompute = rng.choice(["none", "after_gradient", "before_gradient"])
    if schedule == "forward_only":
        recompute = "none"
    directions = 2 if schedule in ("dualpipe", "chimera") else 1
    words = rank_orders(
        schedule, ranks, microbatches, recompute, chunks=chunks, group=group, fused=fused
    )
    largest, latest = rng.choice([1, 3, 30]), rng.choice([0, 1, 4, 40])
    stages = ranks * chunks
    edges = random_edges(rng, stages, directions)
    forward, backward = random_hops(rng, len(edges), microbatches, latest)
    plan = Plan(
        orders=[[word[:3] for word in order] for order in words],
        edges=edges,
        recompute=recompute,
        durations=random_durations(rng, stages, microbatches, largest),
        forward=forward,
        backward=backward,
        partner=partners(words),
        untrained=random_untrained(rng, len(edges)),
        directions=directions,
        chunks=chunks,
    )
    if fused and rng.random() < 0.5:
        alike = rng.random() < 0.5
        plan.durations["F&B"] = random_times(rng, stages, microbatches, largest, alike=alike)
    return plan


def random_untrained(rng: random.Random, edges: int) -> frozenset[int]:
    """Mostly none; else some."""
    share = rng.choice([0.0, 0.0, 0.0, 0.4])
    return frozenset(index for index in range(edges) if rng.random() < share)


def partners(words: list[list[Word]]) -> dict[Operation, tuple[int, int]]:
    """The backward of each pair."""
    return {word[:3]: word[3:] for order in words for word in order if len(word) == 5}


def random_legal_plan(rng: random.Random) -> Plan:
    """A legal order nobody would think of: any sequence that respects the dependencies.

    Stages are spread over the ranks at random, so some edges stay on a rank; some backwards are
    split.
    """
    ranks, microbatches = rng.randint(1, 4), rng.randint(1, 4)
    stages = ranks + rng.randint(0, 3)
    homes = [*range(ranks), *(rng.randrange(ranks) for _ in range(stages - ranks))]
    rng.shuffle(homes)
    recompute = rng.choice(["none", "after_gradient", "before_gradient"])
    edges = random_edges(rng, stages)
    forward, backward = random_hops(rng, len(edges), microbatches, 5)
    places = [(s, m) for s in range(stages) for m in range(microbatches)]
    often_split = rng.choice([0.0, 0.5, 1.0])
    split = {place for place in places if rng.random() < often_split}
    plan = Plan(
        orders=[
            [
                (k, s, m)
                for s, m in places
                if homes[s] == r
                for k in ("F", "R", "I", "W", "B")
                if k == "F"
                or (k == "R" and recompute != "none")
                or (k in "IW" and (s, m) in split)
                or (k == "B" and (s, m) not in split)
            ]
            for r in range(ranks)
        ],
        edges=edges,
        recompute=recompute,
        durations=random_durations(rng, stages, microbatches, 9),
        forward=forward,
        backward=backward,
        untrained=random_untrained(rng, len(edges)),
    )
    waiting = {op: {need for need, _ in found} for op, found in plan.all_needs().items()}
    sequence: list[Operation] = []
    done: set[Operation] = set()
    while waiting:
        ready = sorted(op for op, needs in waiting.items() if needs <= done)
        chosen = rng.choice(ready)
        sequence.append(chosen)
        done.add(chosen)
        del waiting[chosen]
    plan.orders = [[op for op in sequence if homes[op[1]] == r] for r in range(ranks)]
    return plan
