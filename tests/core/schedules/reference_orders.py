"""The orders of the schedules told another way: rule by rule, one operation after the other.

Shares no code with the service. An operation is (letter, stage, microbatch), a fused pair
("F&B", stage, microbatch, stage of the backward, microbatch of the backward).
"""

import heapq
from collections import deque
from functools import lru_cache

from tests.core.schedules import greedy_reference

Word = tuple[str, int, int] | tuple[str, int, int, int, int]

__all__ = ["Word", "fused_orders", "rank_orders", "shapes_of"]


def one_f_one_b(rank: int, ranks: int, microbatches: int) -> list[Word]:
    """Warm up with P - rank forwards, then a backward before each further forward."""
    warm_up = min(microbatches, ranks - rank)
    order: list[Word] = [("F", rank, m) for m in range(warm_up)]
    for m in range(microbatches):
        order.append(("B", rank, m))
        if warm_up + m < microbatches:
            order.append(("F", rank, warm_up + m))
    return order


def chunks_in_order(microbatches: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """(chunk, microbatch), group by group."""
    found: list[tuple[int, int]] = []
    for first in range(0, microbatches, group):
        for chunk in range(chunks):
            group_of = range(first, min(first + group, microbatches))
            found.extend((chunk, m) for m in group_of)
    return found


def interleaved(
    rank: int, ranks: int, microbatches: int, chunks: int, group: int, *, split: bool
) -> list[Word]:
    """Forwards and backwards in turn after a warm-up; `split` weights lag by the rank."""
    sequence = chunks_in_order(microbatches, chunks, group)
    forwards = deque((rank + c * ranks, m) for c, m in sequence)
    backwards = deque((rank + (chunks - 1 - c) * ranks, m) for c, m in sequence)
    warm_up = (1 if split else 2) * (ranks - 1 - rank) + (chunks - 1) * group
    order: list[Word] = [("F", *forwards.popleft()) for _ in range(min(warm_up, len(sequence)))]
    pending: deque[tuple[int, int]] = deque()
    done = 0
    while backwards:
        if forwards:
            order.append(("F", *forwards.popleft()))
        place = backwards.popleft()
        order.append(("I" if split else "B", *place))
        if split:
            pending.append(place)
            if done >= rank:
                order.append(("W", *pending.popleft()))
        done += 1
    return order + [("W", *place) for place in pending]


def handcrafted(rank: int, ranks: int, microbatches: int, times: int) -> list[Word]:
    """ZB-H1 and ZB-H2."""
    forwards = deque(range(microbatches))
    warm_up = min(microbatches, times * (ranks - 1 - rank))
    order: list[Word] = [("F", rank, forwards.popleft()) for _ in range(warm_up)]
    pending: deque[int] = deque()
    for m in range(microbatches):
        if forwards:
            order.append(("F", rank, forwards.popleft()))
        order.append(("I", rank, m))
        pending.append(m)
        if m >= times * rank:
            order.append(("W", rank, pending.popleft()))
    return order + [("W", rank, m) for m in pending]


def zero_bubble_v(rank: int, ranks: int, microbatches: int) -> list[Word]:
    """ZB-V by counting what has been run."""
    stages = (rank, 2 * ranks - 1 - rank)
    counts: dict[tuple[str, int], int] = {}
    order: list[Word] = []
    total = max(microbatches, 2 * ranks - 1)

    def run(*words: str) -> None:
        for word in words:
            letter, chunk = word[0], int(word[1])
            m = counts.get((letter, chunk), 0)
            counts[letter, chunk] = m + 1
            if m < microbatches:
                order.append((letter, stages[chunk], m))

    for _ in range(2 * (ranks - rank) - 1):
        run("F0")
    for _ in range(rank):
        run("F1", "F0")
    for _ in range(ranks - rank):
        run("F1", "I1", "W1")
    while counts.get(("F", 1), 0) < counts["F", 0] or counts["F", 0] < total:
        if counts["F", 0] < total:
            run("F0")
        run("I0", "W0", "F1", "I1", "W1")
    for _ in range(rank):
        run("I0", "I1")
    for _ in range(ranks - rank):
        run("I0", "W0")
    while counts.get(("W", 1), 0) < counts["I", 1]:
        run("W1")
    while counts.get(("W", 0), 0) < counts["I", 0]:
        run("W0")
    return order


def dual_pipe_half(rank: int, ranks: int, microbatches: int) -> list[Word]:
    """The eight steps, by chunk: ("F", chunk, number), ("F&B", chunk, number, chunk, number)."""
    done = {"F": [0, 0], "B": [0, 0]}
    pending: deque[tuple[int, int]] = deque()
    order: list[Word] = []

    def number(kind: str, chunk: int) -> int:
        done[kind][chunk] += 1
        return done[kind][chunk] - 1

    def forward(chunk: int) -> None:
        order.append(("F", chunk, number("F", chunk)))

    def backward(chunk: int, *, split: bool = False) -> None:
        m = number("B", chunk)
        order.append(("I" if split else "B", chunk, m))
        if split:
            pending.append((chunk, m))

    def weight() -> None:
        if pending:
            order.append(("W", *pending.popleft()))

    def both(chunk: int) -> None:
        order.append(("F&B", chunk, number("F", chunk), 1 - chunk, number("B", 1 - chunk)))

    for _ in range(2 * (ranks - 1 - rank)):
        forward(0)
    for _ in range(rank + 1):
        forward(0)
        forward(1)
    for _ in range(ranks - 1 - rank):
        backward(1, split=True)
        weight()
        forward(1)
    for i in range(microbatches - 2 * ranks + rank + 1):
        if i == 0 and rank == ranks - 1:
            forward(0)
            backward(1)
        else:
            both(0)
        both(1)
    for _ in range(ranks - 1 - rank):
        backward(1)
        both(1)
    split = False
    for i in range(rank + 1):
        split |= i == (rank + 1) // 2 and rank % 2 == 1
        backward(1, split=split)
        split |= i == (rank + 1) // 2 and rank % 2 == 0
        backward(0, split=split)
    for _ in range(ranks - 1 - rank):
        weight()
        backward(0, split=True)
    for _ in range(rank + 1):
        weight()
    return order


def dual_pipe_v(rank: int, ranks: int, microbatches: int) -> list[Word]:
    """Chunk 0 is stage r, chunk 1 stage 2P-1-r."""
    stages = (rank, 2 * ranks - 1 - rank)
    order: list[Word] = []
    for word in dual_pipe_half(rank, ranks, microbatches):
        if len(word) == 5:
            order.append((word[0], stages[word[1]], word[2], stages[word[3]], word[4]))
        else:
            order.append((word[0], stages[word[1]], word[2]))
    return order


def dual_pipe(rank: int, ranks: int, microbatches: int) -> list[Word]:
    """Chunk c of the first half of the ranks is direction c, of the second half direction 1 - c."""
    stages = (rank, ranks - 1 - rank)
    mirrored = rank >= ranks // 2
    order: list[Word] = []
    for word in dual_pipe_half(min(stages), ranks // 2, microbatches // 2):
        d = word[1] ^ mirrored
        if len(word) == 5:
            e = word[3] ^ mirrored
            order.append((word[0], stages[d], 2 * word[2] + d, stages[e], 2 * word[4] + e))
        else:
            order.append((word[0], stages[d], 2 * word[2] + d))
    return order


def slots_of_1f1b(ranks: int, microbatches: int) -> dict[tuple[str, int, int], int]:
    """Slots of 1F1B in its steady rhythm: down and back without a stop, two slots apart."""
    slots: dict[tuple[str, int, int], int] = {}
    for m in range(microbatches):
        way = [("F", stage) for stage in range(ranks)]
        way += [("B", stage) for stage in reversed(range(ranks))]
        for step, (letter, stage) in enumerate(way):
            slots[letter, stage, m] = 2 * m + step
    return slots


def chimera(ranks: int, microbatches: int) -> list[list[Word]]:
    """Two pipelines of D/2 microbatches run in slots and laid over each other, block by block."""
    slots = slots_of_1f1b(ranks, ranks // 2)
    queues: list[list[tuple[int, Word]]] = [[] for _ in range(ranks)]
    for (letter, stage, m), slot in slots.items():
        for direction, rank in ((0, stage), (1, ranks - 1 - stage)):
            heapq.heappush(queues[rank], (slot, (letter, stage, 2 * m + direction)))
    block = [[heapq.heappop(queue) for _ in range(len(queue))] for queue in queues]
    for taken in block:
        if len({slot for slot, _ in taken}) < len(taken):
            raise RuntimeError("two operations in one slot")
    return [
        [
            (word[0], word[1], word[2] + first)
            for first in range(0, microbatches, ranks)
            for _, word in taken
        ]
        for taken in block
    ]


@lru_cache(maxsize=1024)
def tried(schedule: str, ranks: int, microbatches: int) -> list[list[Word]]:
    """Made by trying, for equal stages and the memory limit that is the default."""
    if schedule == "zb_auto":
        best = greedy_reference.zb_auto(
            ranks, microbatches, None, greedy_reference.equal_costs(ranks)
        )
    else:
        best = greedy_reference.v_block(schedule, ranks, microbatches)
    return [list(order) for order in best.orders]


def fused_orders(
    schedule: str, ranks: int, microbatches: int, chunks: int = 1, group: int = 0
) -> list[list[Word]]:
    """The orders of a schedule, pairs as one operation, without recompute."""
    m = microbatches
    if schedule == "chimera":
        return chimera(ranks, m)
    if schedule in ("zb_auto", "v_half", "v_min"):
        return tried(schedule, ranks, m)
    orders: list[list[Word]] = []
    for r in range(ranks):
        forwards: list[Word] = [("F", r, k) for k in range(m)]
        order: list[Word]
        match schedule:
            case "forward_only":
                order = forwards
            case "gpipe":
                order = forwards + [("B", r, k) for k in range(m)]
            case "1f1b" | "pipedream" | "pipedream_2bw":
                order = one_f_one_b(r, ranks, m)
            case "interleaved_1f1b":
                order = interleaved(r, ranks, m, chunks, group, split=False)
            case "interleaved_zero_bubble":
                order = interleaved(r, ranks, m, chunks, group, split=True)
            case "looped_bfs":
                order = [("F", r + c * ranks, k) for c in range(chunks) for k in range(m)]
                order += [("B", s, k) for _, s, k in [word[:3] for word in order[::-1]]]
            case "zb_h1":
                order = handcrafted(r, ranks, m, 1)
            case "zb_h2":
                order = handcrafted(r, ranks, m, 2)
            case "zb_v":
                order = zero_bubble_v(r, ranks, m)
            case "dualpipe_v":
                order = dual_pipe_v(r, ranks, m)
            case "dualpipe":
                order = dual_pipe(r, ranks, m)
            case _:
                raise ValueError(schedule)
        orders.append(order)
    return orders


def rank_orders(
    schedule: str,
    ranks: int,
    microbatches: int,
    recompute: str = "none",
    *,
    chunks: int = 1,
    group: int = 0,
    fused: bool = False,
) -> list[list[Word]]:
    """The orders of a schedule; pairs one after the other unless `fused`."""
    orders = []
    for order in fused_orders(schedule, ranks, microbatches, chunks, group):
        flat: list[Word] = []
        for word in order:
            parts: list[Word] = [word]
            if len(word) == 5 and not fused:
                parts = [("F", word[1], word[2]), ("B", word[3], word[4])]
            for part in parts:
                if recompute != "none" and part[0] in ("B", "I", "F&B"):
                    flat.append(("R", *part[-2:]))
                flat.append(part)
        orders.append(flat)
    return orders


def shapes_of(schedule: str, largest: int = 4) -> list[tuple[int, int, int, int]]:
    """(ranks, microbatches, chunks, group) that are legal, small ones."""
    found: list[tuple[int, int, int, int]] = []
    for ranks in range(1, largest + 1):
        for m in range(1, 3 * largest + 1):
            match schedule:
                case "interleaved_1f1b" | "interleaved_zero_bubble":
                    rounds = max(1, m // ranks)
                    if m % rounds == 0:
                        found += [(ranks, m, chunks, m // rounds) for chunks in (1, 2, 3)]
                case "looped_bfs":
                    found += [(ranks, m, chunks, 0) for chunks in (1, 2, 3)]
                case "zb_v" | "v_half" | "v_min":
                    found.append((ranks, m, 2, 0))
                case "dualpipe_v":
                    found += [(ranks, m, 2, 0)] if m >= 2 * ranks else []
                case "dualpipe":
                    legal = ranks % 2 == 0 and m % 2 == 0 and m >= 2 * ranks
                    found += [(ranks, m, 1, 0)] if legal else []
                case "chimera":
                    found += [(ranks, m, 1, 0)] if ranks % 2 == 0 and m % ranks == 0 else []
                case "pipedream_2bw":
                    found += [(ranks, m, 1, 0)] if m >= ranks else []
                case _:
                    found.append((ranks, m, 1, 0))
    return found
