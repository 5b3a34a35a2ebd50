"""A slow reference for links with queues: whatever is settled is looked for over and over.

It follows the rules as they are written in `simulate_links` and shares no code with it: no heap and
no worklist. All that follows from what is known is derived by scanning until nothing is new, then
the one bundle that is first by the rule is served. What an operation exchanges itself is given the
time that messages leave it picosecond by picosecond; it is done when nothing that is still to come
could take any of that.
"""

import random
from dataclasses import dataclass, field

from tests.core.schedules.event_simulator import Operation, Plan

__all__ = ["Links", "Message", "Occupancy", "Result", "random_links", "simulate_with_links"]

# Over which edge, whether back, and between which operations; or the bundle of an operation itself.
Message = tuple[int, bool, Operation, Operation] | Operation
Occupancy = tuple[dict[int, int], int]  # picoseconds by link, and the latency


@dataclass
class Links:
    """What a message over each edge and direction occupies, and what some operations do."""

    count: int
    crossings: dict[tuple[int, bool], Occupancy]
    own: dict[Operation, Occupancy] = field(default_factory=dict)

    def of(self, message: Message) -> Occupancy:
        if len(message) == 4:
            return self.crossings[message[0], message[1]]
        return self.own[message]


@dataclass
class Result:
    """Times of operations, arrivals of messages, and who held which link when, in sequence."""

    start: dict[Operation, int]
    end: dict[Operation, int]
    arrival: dict[Message, int]
    held: dict[int, list[tuple[Message, int, int]]]
    # Of what operations exchange themselves, between the messages on each link.
    pieces: dict[int, list[tuple[Message, int, int]]]


def simulate_with_links(plan: Plan, links: Links) -> Result:
    """Run the plan with messages that queue on links."""
    crossings = plan.all_crossings()
    homes = plan.homes
    messages: list[tuple[int, bool, Operation, Operation]] = [
        (*way[:2], need, op) for op, needs in crossings.items() for need, way in needs if way
    ]
    at_once = [message for message in messages if not links.of(message)[0]]
    queueing = [message for message in messages if links.of(message)[0]]
    start: dict[Operation, int] = {}
    end: dict[Operation, int] = {}
    arrival: dict[Message, int] = {}
    held: dict[int, list[tuple[Message, int, int]]] = {link: [] for link in range(links.count)}

    def startable(op: Operation, before: Operation | None) -> int | None:
        if before is not None and before not in end:
            return None
        times = [0 if before is None else end[before]]
        for need, way in crossings[op]:
            message = None if way is None else (*way[:2], need, op)
            if need not in end or (message is not None and message not in arrival):
                return None
            times.append(end[need] if message is None else arrival[message])
        return max(times)

    def derive() -> bool:
        new = False
        for order in plan.orders:
            for before, op in zip([None, *order], order, strict=False):
                if op not in start:
                    begin = startable(op, before)
                    if begin is None:
                        break
                    start[op], new = begin, True
                if op in end:
                    continue
                if op in links.own and op not in arrival:
                    occupied, latency = links.own[op]
                    if occupied:
                        break
                    arrival[op] = start[op] + latency
                end[op] = max(start[op] + plan.duration(op), arrival.get(op, 0))
                new = True
        for message in at_once:
            if message not in arrival and message[2] in end:
                arrival[message] = end[message[2]] + links.of(message)[1]
                new = True
        return new

    def turn(message: Message) -> tuple[int, ...]:
        if len(message) == 4:
            index, back, producer, _ = message
            source, target = plan.edges[index][:2]
            sender, receiver = (target, source) if back else (source, target)
            letters = "BI" if back else "F"
            microbatch = next(m for k, s, m in plan.parts(producer) if k in letters and s == sender)
            rank = homes[sender, microbatch % plan.directions]
            return (end[producer], rank, sender, microbatch, back, receiver)
        letter, stage, microbatch = message
        rank = homes[stage, microbatch % plan.directions]
        return (start[message], rank, stage, microbatch, letter not in ("F", "F&B"), stage)

    registered: list[Operation] = []  # in sequence
    own_done: dict[tuple[Operation, int], int] = {}

    def done_on(
        op: Operation, link: int, pieces: list[tuple[Message, int, int]] | None = None
    ) -> int:
        """When a link has given an operation's bundle its time, one picosecond after the other."""
        at = start[op]
        for before in registered[: registered.index(op)]:
            if link in links.own[before][0]:
                at = max(
                    at,
                    own_done[before, link] if (before, link) in own_done else done_on(before, link),
                )
        left = links.own[op][0][link]
        while left:
            if any(begin <= at < until for _, begin, until in held[link]):
                at += 1
                continue
            if pieces is not None and pieces and pieces[-1][0] == op and pieces[-1][2] == at:
                pieces[-1] = (op, pieces[-1][1], at + 1)
            elif pieces is not None:
                pieces.append((op, at, at + 1))
            left, at = left - 1, at + 1
        return at

    while True:
        while derive():
            pass
        ready: list[Message] = [m for m in queueing if m not in arrival and m[2] in end]
        ready += [
            op
            for op in links.own
            if op in start and op not in arrival and links.own[op][0] and op not in registered
        ]
        served = min(ready, key=turn) if ready else None
        open_ones = [op for op in registered if op not in arrival]
        ends_of = {op: max(done_on(op, link) for link in links.own[op][0]) for op in open_ones}
        first = min(open_ones, key=ends_of.__getitem__) if open_ones else None
        if first is not None and (served is None or ends_of[first] <= turn(served)[0]):
            for link in links.own[first][0]:
                own_done[first, link] = done_on(first, link)
            arrival[first] = ends_of[first] + links.own[first][1]
            continue
        if served is None:
            break
        at = turn(served)[0]
        occupied, latency = links.of(served)
        if len(served) == 3:
            registered.append(served)
            continue
        ends = []
        for link, time in occupied.items():
            begin = max([at, *(until for _, _, until in held[link])])
            held[link].append((served, begin, begin + time))
            ends.append(begin + time)
        arrival[served] = max(ends) + latency
    pieces: dict[int, list[tuple[Message, int, int]]] = {link: [] for link in range(links.count)}
    for link in range(links.count):
        for op in registered:
            if link in links.own[op][0]:
                done_on(op, link, pieces[link])
    return Result(start, end, arrival, held, pieces)


def random_links(rng: random.Random, plan: Plan, *, own: bool) -> Links:
    """Few links that many share, small times with zeros; some messages use none."""
    count = rng.randint(1, 4)
    most = rng.choice([1, 2, 6, 40])

    def occupancy() -> Occupancy:
        used = rng.sample(range(count), rng.randint(0, count))
        return {link: rng.randint(0, most) for link in used}, rng.choice([0, 0, 1, 3])

    links = Links(
        count,
        {(i, back): occupancy() for i in range(len(plan.edges)) for back in (False, True)},
    )
    for order in plan.orders if own else ():
        for op in order:
            if rng.random() < 0.3:
                links.own[op] = occupancy()
    return links
