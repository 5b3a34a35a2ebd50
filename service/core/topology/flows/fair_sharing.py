"""A prediction: messages over their pinned paths, which share every link fairly.

Rates are max-min fair (no message can be faster without slowing one that is no faster), as
congestion control aims at; they change whenever a message is complete. Rates of links are effective
ones, where they are known.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_ROUND_ENTRIES", "fair_rates", "share_fairly"]

Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Links of paths looked at in all rounds together: a second or two.
MAX_ROUND_ENTRIES = 100_000_000

# Times and shares that differ by less are taken for equal, so that what is alike ends together.
_ROUNDING = 1e-12


def share_fairly(
    paths: Sequence[Sequence[int]],
    message_bytes: Float64Array,
    resource: Int32Array,
    bytes_per_second: Float64Array,
) -> Float64Array | None:
    """(F,) when each message is complete, in seconds, all starting at 0 and without latency.

    `paths` has the links of each message by number, `resource` (E,) the capacity that each link
    takes up and `bytes_per_second` (E,) its rate: a byte holds the capacity for as long as its link
    takes. A message without links is complete at once. None when it takes more than
    `MAX_ROUND_ENTRIES`.
    """
    flow = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    link = np.array([one for path in paths for one in path], dtype=np.int64)
    taken, seconds_per_byte = resource[link], 1.0 / bytes_per_second[link]
    left = message_bytes.astype(np.float64)
    ends = np.zeros(len(paths))
    active = np.zeros(len(paths), dtype=np.bool_)
    active[flow] = True
    active &= left > 0
    now, looked_at = 0.0, 0
    while active.any():
        entries = active[flow]
        rates, rounds = fair_rates(flow[entries], taken[entries], seconds_per_byte[entries], active)
        looked_at += rounds * int(entries.sum())
        if looked_at > MAX_ROUND_ENTRIES:
            return None
        wait = np.divide(left, rates, out=np.full(len(paths), np.inf), where=active)
        step = float(wait.min())
        now += step
        done = active & (wait <= step * (1 + _ROUNDING))
        left = np.where(active, np.maximum(left - rates * step, 0.0), left)
        ends[done] = now
        active &= ~done
    return ends


def fair_rates(
    flow: Int64Array, resource: Int32Array, seconds_per_byte: Float64Array, active: BoolArray
) -> tuple[Float64Array, int]:
    """(F,) max-min fair rates of `active` messages, by progressive filling, and the rounds it took.

    Message `flow[i]` holds capacity `resource[i]` for `seconds_per_byte[i]`. Every active message
    holds one at least. Each round settles the messages of the fullest capacities.
    """
    rates = np.zeros(len(active))
    waiting = active.copy()
    left = np.ones(int(resource.max(initial=0)) + 1)
    rounds = 0
    while waiting.any():
        rounds += 1
        open_ = waiting[flow]
        held = np.bincount(resource[open_], seconds_per_byte[open_], len(left))
        share = np.divide(left, held, out=np.full(len(left), np.inf), where=held > 0)
        least = float(share.min())
        full = share <= least * (1 + _ROUNDING)
        settled = np.zeros(len(active), dtype=np.bool_)
        settled[flow[open_ & full[resource]]] = True
        rates[settled] = least
        of_settled = settled[flow]
        given = np.bincount(resource[of_settled], seconds_per_byte[of_settled], len(left))
        left = np.maximum(left - least * given, 0.0)
        waiting &= ~settled
    return rates, rounds
