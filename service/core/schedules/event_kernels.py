"""The compiled loop of link mode: events in the order of their times."""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import read_only, writable

__all__ = ["run_events"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

_HEAP = (writable(types.int64, 1),) * 3
_EVENT = (types.int64,) * 3


@njit(types.void(*_HEAP, types.int64, *_EVENT), nogil=True, cache=True)
def _push(
    times: Int64Array,
    priorities: Int64Array,
    bundles: Int64Array,
    size: int,
    time: int,
    priority: int,
    bundle: int,
) -> None:
    """Put (time, priority, bundle) into a heap of `size`, least first."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if times[above] < time or (times[above] == time and priorities[above] <= priority):
            break
        times[place], priorities[place] = times[above], priorities[above]
        bundles[place] = bundles[above]
        place = above
    times[place], priorities[place], bundles[place] = time, priority, bundle


@njit(types.void(*_HEAP, types.int64), nogil=True, cache=True)
def _remove_first(
    times: Int64Array, priorities: Int64Array, bundles: Int64Array, size: int
) -> None:
    """Take the least out of a heap of `size`."""
    last = size - 1
    time, priority, bundle = times[last], priorities[last], bundles[last]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            times[right] < times[below]
            or (times[right] == times[below] and priorities[right] < priorities[below])
        ):
            below = right
        if time < times[below] or (time == times[below] and priority <= priorities[below]):
            break
        times[place], priorities[place] = times[below], priorities[below]
        bundles[place] = bundles[below]
        place = below
    times[place], priorities[place], bundles[place] = time, priority, bundle


@njit(
    types.int64(
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        types.int64,
        types.int64,
        writable(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int32, 1),
        writable(types.int64, 1),
        writable(types.int32, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def run_events(
    rank_offsets: Int64Array,
    rank: Int32Array,
    input_offsets: Int64Array,
    inputs: Int64Array,
    durations: Int64Array,
    kind_of: Int32Array,
    priority: Int64Array,
    offsets: Int64Array,
    link: Int32Array,
    occupied: Int64Array,
    latency: Int64Array,
    links: int,
    limit: int,
    start: Int64Array,
    end: Int64Array,
    binding: Int32Array,
    arrival: Int64Array,
    bound_link: Int32Array,
    behind: Int64Array,
    sequence: Int64Array,
) -> int:
    """Run a program whose messages queue on links; `simulate_links` tells the rules.

    Bundle i is that of input i; bundle `len(inputs) + o` is operation o's own, where `kind_of` and
    `priority` are so long. Fills `arrival`, `bound_link` and `behind` by bundle (these two hold -1
    where there is nothing to say), and `sequence` with what was settled, one after the other:
    operation o as o when its start is known, bundle b as operations + b. Returns how many that are,
    or -1 when a time passes `limit`.
    """
    operations, messages, ranks = len(rank), len(inputs), len(rank_offsets) - 1
    own = len(kind_of) > messages
    # Who waits for which operation's value.
    consumer = np.empty(messages, np.int32)
    missing = np.empty(operations, np.int32)
    output_offsets = np.zeros(operations + 2, np.int64)
    for operation in range(operations):
        missing[operation] = input_offsets[operation + 1] - input_offsets[operation]
        for i in range(input_offsets[operation], input_offsets[operation + 1]):
            consumer[i] = operation
            output_offsets[inputs[i] + 2] += 1
    for operation in range(operations):
        output_offsets[operation + 2] += output_offsets[operation + 1]
    outputs = np.empty(messages, np.int64)
    for i in range(messages):
        outputs[output_offsets[inputs[i] + 1]] = i
        output_offsets[inputs[i] + 1] += 1

    free = np.zeros(ranks, np.int64)
    reached = rank_offsets[:-1].copy()
    started = np.zeros(ranks, np.bool_)  # its operation waits for a bundle of its own
    # A stack of ranks whose next operation has all it needs, so no rank is on it twice.
    able = np.empty(ranks, np.int32)
    able_count = 0
    for r in range(ranks - 1, -1, -1):
        if missing[reached[r]] == 0:
            able[able_count] = r
            able_count += 1
    link_free = np.zeros(links, np.int64)
    link_last = np.full(links, -1, np.int64)
    # Of own bundles, which a link serves while it has no message: all that messages took of it so
    # far, and what was left of bundles at some time, when messages had taken so much.
    link_taken = np.zeros(links, np.int64)
    own_left, own_at, own_taken = np.zeros((3, links), np.int64)
    most = 0
    for bundle in range(messages, len(kind_of)):
        if kind_of[bundle] >= 0:
            most = max(most, offsets[kind_of[bundle] + 1] - offsets[kind_of[bundle]])
    # By rank and place in the bundle of its operation: what has to be served until it is done, and
    # what messages had taken when it was ready; and the link that was last looked for.
    wanted, taken_before = np.empty((2, ranks, most), np.int64)
    registered = np.zeros(ranks, np.bool_)
    last_link = np.empty(ranks, np.int32)
    heap_times = np.empty(len(kind_of), np.int64)
    heap_priorities = np.empty(len(kind_of), np.int64)
    heap_bundles = np.empty(len(kind_of), np.int64)
    waiting = 0
    settled = 0
    while True:
        while able_count > 0:
            able_count -= 1
            r = able[able_count]
            operation = reached[r]
            while operation < rank_offsets[r + 1]:
                if not started[r]:
                    if missing[operation] > 0:
                        break
                    latest, binds, binding_time = free[r], -1, np.int64(0)
                    for i in range(input_offsets[operation], input_offsets[operation + 1]):
                        taken = arrival[i] - end[inputs[i]]
                        if arrival[i] > latest or (
                            arrival[i] == latest and binds >= 0 and taken < binding_time
                        ):
                            latest, binds, binding_time = arrival[i], i, taken
                    start[operation], binding[operation] = latest, binds
                    sequence[settled] = operation
                    settled += 1
                    end[operation] = latest + durations[operation]
                    if end[operation] > limit:
                        return -1
                    bundle = messages + operation
                    kind = kind_of[bundle] if own else np.int32(-1)
                    if kind >= 0 and offsets[kind] < offsets[kind + 1]:
                        _push(
                            heap_times,
                            heap_priorities,
                            heap_bundles,
                            waiting,
                            latest,
                            priority[bundle],
                            bundle,
                        )
                        waiting += 1
                        started[r] = True
                        break
                    if kind >= 0:
                        arrival[bundle] = latest + latency[kind]
                        if arrival[bundle] > limit:
                            return -1
                        end[operation] = max(end[operation], arrival[bundle])
                        sequence[settled] = operations + bundle
                        settled += 1
                started[r] = False
                free[r] = end[operation]
                for o in range(output_offsets[operation], output_offsets[operation + 1]):
                    bundle = outputs[o]
                    kind = kind_of[bundle]
                    if offsets[kind] < offsets[kind + 1]:
                        _push(
                            heap_times,
                            heap_priorities,
                            heap_bundles,
                            waiting,
                            end[operation],
                            priority[bundle],
                            bundle,
                        )
                        waiting += 1
                        continue
                    # Nothing to queue for, so nobody can come between.
                    arrival[bundle] = end[operation] + latency[kind]
                    if arrival[bundle] > limit:
                        return -1
                    sequence[settled] = operations + bundle
                    settled += 1
                    after = consumer[bundle]
                    missing[after] -= 1
                    if missing[after] == 0 and reached[rank[after]] == after:
                        able[able_count] = rank[after]
                        able_count += 1
                operation += 1
                reached[r] = operation
        if waiting == 0:
            return settled
        ready, bundle = heap_times[0], heap_bundles[0]
        _remove_first(heap_times, heap_priorities, heap_bundles, waiting)
        waiting -= 1
        kind = kind_of[bundle]
        if bundle >= messages:
            exchanging = bundle - messages
            r = rank[exchanging]
            begun = start[exchanging]
            first = offsets[kind]
            finish, on = ready, -1
            if not registered[r]:
                registered[r] = True
                sequence[settled] = operations + bundle
                settled += 1
                for e in range(first, offsets[kind + 1]):
                    shared = link[e]
                    backlog = max(np.int64(0), link_free[shared] - begun)
                    taken = link_taken[shared] - backlog
                    served = (begun - own_at[shared]) - (taken - own_taken[shared])
                    left = max(np.int64(0), own_left[shared] - served) + occupied[e]
                    own_left[shared], own_at[shared], own_taken[shared] = left, begun, taken
                    wanted[r, e - first], taken_before[r, e - first] = left, taken
                    until = begun + left + (backlog if left > 0 else np.int64(0))
                    if on < 0 or until > finish:
                        finish, on = until, shared
            else:
                for e in range(first, offsets[kind + 1]):
                    shared = link[e]
                    taken = link_taken[shared] - max(np.int64(0), link_free[shared] - ready)
                    served = (ready - begun) - (taken - taken_before[r, e - first])
                    if ready + wanted[r, e - first] - served > finish:
                        finish, on = ready + wanted[r, e - first] - served, shared
            if on >= 0:
                last_link[r] = on
            if finish > limit:
                return -1
            if finish > ready:
                _push(
                    heap_times,
                    heap_priorities,
                    heap_bundles,
                    waiting,
                    finish,
                    priority[bundle],
                    bundle,
                )
                waiting += 1
                continue
            registered[r] = False
            bound_link[bundle] = last_link[r]
            arrival[bundle] = ready + latency[kind]
            if arrival[bundle] > limit:
                return -1
            end[exchanging] = max(end[exchanging], arrival[bundle])
            able[able_count] = r
            able_count += 1
            continue
        latest, which, before = ready, -1, -1
        for e in range(offsets[kind], offsets[kind + 1]):
            queue = link[e]
            begin = max(ready, link_free[queue])
            finish = begin + occupied[e]
            if finish > limit:
                return -1
            if which < 0 or finish > latest:
                latest, which = finish, queue
                before = link_last[queue] if begin > ready else -1
            link_free[queue], link_last[queue] = finish, bundle
            link_taken[queue] += occupied[e]
        arrival[bundle] = latest + latency[kind]
        if arrival[bundle] > limit:
            return -1
        bound_link[bundle], behind[bundle] = which, before
        sequence[settled] = operations + bundle
        settled += 1
        after = consumer[bundle]
        missing[after] -= 1
        if missing[after] == 0 and reached[rank[after]] == after:
            able[able_count] = rank[after]
            able_count += 1
