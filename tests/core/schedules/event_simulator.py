"""A slow reference: orders written down from the rules, run event by event from a queue of times.

Shares no code with the service beyond the names of the kinds.
"""

import heapq
import random
from dataclasses import dataclass, field

Operation = tuple[str, int, int]  # letter, stage, microbatch
Edge = tuple[int, int]


@dataclass
class Plan:
    """What is to be run: an order for each rank, dependencies by rule, times by stage and edge."""

    orders: list[list[Operation]]
    edges: list[Edge]
    recompute: str  # "none", "after_gradient" or "before_gradient"
    durations: dict[str, list[int]]  # by letter, then by stage
    forward: list[int] = field(default_factory=list)  # by edge
    backward: list[int] = field(default_factory=list)

    @property
    def rank_of(self) -> dict[int, int]:
        return {s: r for r, order in enumerate(self.orders) for _, s, _ in order}

    def needs(self, operation: Operation) -> list[tuple[Operation, int]]:
        """What an operation waits for, and the latency of each."""
        letter, stage, microbatch = operation
        ranks = self.rank_of
        found: list[tuple[Operation, int]] = []
        takes_gradient = "R" if self.recompute == "after_gradient" else "B"
        for index, (source, target) in enumerate(self.edges):
            crosses = ranks[source] != ranks[target]
            if letter == "F" and stage == target:
                found.append((("F", source, microbatch), self.forward[index] * crosses))
            if letter == takes_gradient and stage == source:
                found.append((("B", target, microbatch), self.backward[index] * crosses))
        if letter in "RB":
            found.append((("F", stage, microbatch), 0))
        if letter == "B" and self.recompute != "none":
            found.append((("R", stage, microbatch), 0))
        return found


def simulate_by_events(plan: Plan) -> dict[Operation, tuple[int, int, int]]:
    """Start, end and transfer wait of every operation (golden/schedules/README defines it)."""
    done: dict[Operation, tuple[int, int, int]] = {}
    position = [0] * len(plan.orders)
    free = [0] * len(plan.orders)
    needs = {op: plan.needs(op) for order in plan.orders for op in order}
    times = [0]
    while times:
        now = heapq.heappop(times)
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
                letter, stage, _ = operation
                end = now + plan.durations[letter][stage]
                done[operation] = (now, end, min(gap, binding))
                free[rank] = end
                position[rank] += 1
                heapq.heappush(times, end)
                for latency in {*plan.forward, *plan.backward}:
                    heapq.heappush(times, end + latency)
                progress = True
    stuck = [o[p] for o, p in zip(plan.orders, position, strict=True) if p < len(o)]
    if stuck:
        raise RuntimeError(f"stuck at {stuck}")
    return done


def rank_orders(
    schedule: str, ranks: int, microbatches: int, recompute: str = "none"
) -> list[list[Operation]]:
    """The orders of a schedule, told another way than the service does."""
    orders: list[list[Operation]] = []
    for rank in range(ranks):
        forwards = [("F", rank, m) for m in range(microbatches)]
        backwards = [("B", rank, m) for m in range(microbatches)]
        order: list[Operation] = []
        if schedule == "forward_only":
            order = forwards
        elif schedule == "gpipe":
            order = forwards + backwards
        else:  # warm up with P - rank forwards, then a backward before each further forward
            warm_up = min(microbatches, ranks - rank)
            order = forwards[:warm_up]
            for m in range(microbatches):
                order.append(backwards[m])
                order.extend(forwards[warm_up + m : warm_up + m + 1])
        if recompute != "none":
            order = [
                op
                for old in order
                for op in ([("R", old[1], old[2]), old] if old[0] == "B" else [old])
            ]
        orders.append(order)
    return orders


def random_edges(rng: random.Random, stages: int) -> list[Edge]:
    """The chain, or a random set of edges from lower to higher stages."""
    every = [(a, b) for b in range(stages) for a in range(b)]
    if rng.random() < 0.5 or not every:
        return [(s, s + 1) for s in range(stages - 1)]
    return rng.sample(every, rng.randint(0, len(every)))


def random_plan(rng: random.Random, schedule: str) -> Plan:
    """Few ranks and microbatches, small uneven times with zeros and many ties."""
    ranks, microbatches = rng.randint(1, 5), rng.randint(1, 7)
    recompute = rng.choice(["none", "after_gradient", "before_gradient"])
    if schedule == "forward_only":
        recompute = "none"
    edges = random_edges(rng, ranks)
    largest, latest = rng.choice([1, 3, 30]), rng.choice([0, 1, 4, 40])
    return Plan(
        orders=rank_orders(schedule, ranks, microbatches, recompute),
        edges=edges,
        recompute=recompute,
        durations={k: [rng.randint(0, largest) for _ in range(ranks)] for k in "FBR"},
        forward=[rng.randint(0, latest) for _ in edges],
        backward=[rng.randint(0, latest) for _ in edges],
    )


def random_legal_plan(rng: random.Random) -> Plan:
    """A legal order nobody would think of: any sequence that respects the dependencies.

    Stages are spread over the ranks at random, so some edges stay on a rank.
    """
    ranks, microbatches = rng.randint(1, 4), rng.randint(1, 4)
    stages = ranks + rng.randint(0, 3)
    homes = [*range(ranks), *(rng.randrange(ranks) for _ in range(stages - ranks))]
    rng.shuffle(homes)
    recompute = rng.choice(["none", "after_gradient", "before_gradient"])
    letters = "FB" if recompute == "none" else "FRB"
    edges = random_edges(rng, stages)
    plan = Plan(
        orders=[
            [
                (k, s, m)
                for s in range(stages)
                if homes[s] == r
                for k in letters
                for m in range(microbatches)
            ]
            for r in range(ranks)
        ],
        edges=edges,
        recompute=recompute,
        durations={k: [rng.randint(0, 9) for _ in range(stages)] for k in "FBR"},
        forward=[rng.randint(0, 5) for _ in edges],
        backward=[rng.randint(0, 5) for _ in edges],
    )
    waiting = {op: {need for need, _ in plan.needs(op)} for order in plan.orders for op in order}
    sequence: list[Operation] = []
    while waiting:
        ready = sorted(op for op, needs in waiting.items() if needs.issubset(sequence))
        chosen = rng.choice(ready)
        sequence.append(chosen)
        del waiting[chosen]
    plan.orders = [[op for op in sequence if homes[op[1]] == r] for r in range(ranks)]
    return plan
