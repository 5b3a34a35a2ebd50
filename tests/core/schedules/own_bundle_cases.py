"""Random plans whose operations exchange something themselves, for the service and the reference.

What the reference is told is worked out here, operation by operation.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from service.core.schedules.bundles import Bundles
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.own_bundles import OwnBundles
from service.core.schedules.program import Program
from service.core.schedules.transfers import LinkTransfers, Transfers
from tests.core.schedules.event_simulator import Operation, Plan, random_plan
from tests.core.schedules.plans import named_program
from tests.core.schedules.queue_reference import Links, Occupancy, random_links
from tests.core.schedules.random_cases import scaled

__all__ = ["OwnCase", "own_cases", "transfers_of"]

LETTERS = ("F", "B", "I", "R")

# The bundle of each kind of operation, stage and microbatch, where there is any.
Exchanges = dict[Operation, Occupancy]


@dataclass
class OwnCase:
    """A plan of a named schedule, its program, and its transfers as both sides know them."""

    plan: Plan
    program: Program
    links: Links
    exchanges: Exchanges

    @property
    def transfers(self) -> Transfers:
        """The service's."""
        return transfers_of(self.program, self.links, self.exchanges)


def own_cases(
    rng: random.Random, count: int, *, alike: bool = False, unit: int = 1
) -> Iterator[OwnCase]:
    """So many random cases, times multiples of `unit`; `alike` ones have microbatches that are."""
    while count > 0:
        schedule = rng.choice([*SCHEDULES])
        plan = random_plan(rng, schedule, fused=rng.random() < 0.6)
        if alike:
            for rows in (*plan.durations.values(), plan.forward, plan.backward):
                rows[:] = [[row[0]] * len(row) for row in rows]
        if not any(plan.duration(op) for order in plan.orders for op in order):
            continue
        count -= 1
        plan.durations = {letter: scaled(rows, unit) for letter, rows in plan.durations.items()}
        plan.forward, plan.backward = scaled(plan.forward, unit), scaled(plan.backward, unit)
        program = named_program(plan, schedule)
        links = random_links(rng, plan, own=False)
        links.crossings = {way: longer(found, unit) for way, found in links.crossings.items()}
        exchanges = {
            op: longer(found, unit)
            for op, found in random_exchanges(
                rng, program, links.count, alike=alike or rng.random() < 0.5
            ).items()
        }
        links.own = {
            op: found
            for order in plan.orders
            for op in order
            if (found := own_of(plan, exchanges, op)) is not None
        }
        yield OwnCase(plan, program, links, exchanges)


def random_exchanges(rng: random.Random, program: Program, count: int, *, alike: bool) -> Exchanges:
    def occupancy() -> Occupancy:
        used = rng.sample(range(count), rng.randint(0, count))
        return {link: rng.randint(0, 6) for link in used}, rng.choice([0, 0, 2, 5])

    found: Exchanges = {}
    for letter in LETTERS:
        for stage in range(program.stages):
            one = occupancy()
            some = rng.random() < 0.5
            for microbatch in range(program.microbatches):
                if some and alike:
                    found[letter, stage, microbatch] = one
                elif some and rng.random() < 0.7:
                    found[letter, stage, microbatch] = occupancy()
    return found


def longer(exchange: Occupancy, unit: int) -> Occupancy:
    occupied, latency = exchange
    return {link: time * unit for link, time in occupied.items()}, latency * unit


def alone(exchange: Occupancy) -> int:
    occupied, latency = exchange
    return max(occupied.values(), default=0) + latency


def lasting(plan: Plan, exchanges: Exchanges, op: Operation) -> int:
    """What an operation takes alone: no less than what it exchanges itself."""
    if op[0] != "F&B":
        return max(plan.duration(op), alone(exchanges[op]) if op in exchanges else 0)
    parts = plan.parts(op)
    if "F&B" not in plan.durations:
        return sum(lasting(plan, exchanges, part) for part in parts)
    return max(plan.duration(op), *sums(exchanges, parts).values(), 0)


def sums(exchanges: Exchanges, parts: Sequence[Operation]) -> dict[int, int]:
    """Picoseconds on each link of some operations together."""
    found: dict[int, int] = {}
    for part in parts:
        for link, time in exchanges[part][0].items() if part in exchanges else ():
            found[link] = found.get(link, 0) + time
    return found


def own_of(plan: Plan, exchanges: Exchanges, op: Operation) -> Occupancy | None:
    """The bundle of one operation of an order; a pair's takes alone what the pair does."""
    if op[0] != "F&B":
        return exchanges.get(op)
    parts = plan.parts(op)
    if not any(part in exchanges for part in parts):
        return None
    occupied = sums(exchanges, parts)
    time = lasting(plan, exchanges, op)
    return occupied, max(0, time - max(occupied.values(), default=0))


def transfers_of(program: Program, links: Links, exchanges: Exchanges) -> Transfers:
    """Kinds 2e and 2e + 1 are what crosses edge e there and back, those after them exchanges."""
    every: list[Occupancy] = []
    for edge in range(len(program.stage_edges)):
        every += [links.crossings[edge, False], links.crossings[edge, True]]
    edges = np.arange(len(program.stage_edges), dtype=np.int32)[:, np.newaxis]
    tables = []
    for letter in LETTERS:
        table = np.full((program.stages, program.microbatches), -1, dtype=np.int32)
        for (of, stage, microbatch), exchange in exchanges.items():
            if of == letter:
                table[stage, microbatch] = len(every)
                every.append(exchange)
        # One for all microbatches where all have the same, as plans have it.
        rows = [[every[kind] if kind >= 0 else None for kind in row] for row in table.tolist()]
        if all(row.count(row[0]) == len(row) for row in rows):
            table = table[:, :1]
        tables.append(table)
    bundles = Bundles.of(
        links.count,
        [list(occupied.items()) for occupied, _ in every],
        [latency for _, latency in every],
    )
    own = OwnBundles(*tables)
    return Transfers.over_links(LinkTransfers.of(bundles, 2 * edges, 2 * edges + 1, own))
