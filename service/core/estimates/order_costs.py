"""What the order of a plan is made for, where its schedule follows times and memory."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.core.memory.live import ActivationDeltas
from service.core.schedules.order_costs import OrderCosts
from service.core.schedules.program import StageEdge
from service.core.schedules.stage_times import StageTimes

__all__ = ["order_costs"]

Int64Array = npt.NDArray[np.int64]


def order_costs(
    edges: Sequence[StageEdge],
    times: StageTimes,
    latencies: tuple[Int64Array, Int64Array],
    deltas: ActivationDeltas | None,
) -> OrderCosts | None:
    """The ratios of a plan's times and memory; None where the halves of a backward are not known.

    Where microbatches differ the order is made for their sums, and for the largest of each stage's
    activations, so that a limit on these holds for all. A recomputation counts to the input half
    that follows it, and so does what it makes; where that half frees a part of the two, the part
    is taken to be kept until the weight half, so that the limit holds in between. `latencies` are
    those of each edge, forward and backward, in picoseconds.
    """
    if times.backward_input is None or times.backward_weight is None:
        return None
    count = max(times.widths | {of_edges.shape[-1] for of_edges in latencies})

    def summed(given: Int64Array) -> list[int]:
        """Of so many microbatches, in picoseconds; exact, as Python's integers are."""
        return [sum(row) * (count // len(row)) for row in given.tolist()]

    halves = summed(times.backward_input), summed(times.recompute)
    memory = None
    if deltas is not None:
        made = deltas.forward.max(axis=1)
        again, change = deltas.recompute, deltas.backward_input
        change = np.where(again > 0, again + np.maximum(change, 0), change)
        after = (deltas.forward + change).max(axis=1)
        memory = made.tolist(), (after - made).tolist()
    return OrderCosts.of(
        [(edge.source, edge.target) for edge in edges],
        (
            summed(times.forward),
            [half + again for half, again in zip(*halves, strict=True)],
            summed(times.backward_weight),
        ),
        (summed(latencies[0]), summed(latencies[1])),
        memory,
    )
