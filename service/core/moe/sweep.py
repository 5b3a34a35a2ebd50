"""What a capacity factor trades: tokens dropped against rows of the busiest rank and padding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.moe.assignments import Assignments
from service.core.moe.capacity import admit
from service.core.moe.overflow import Capacity
from service.core.moe.served import Admitted, ExpertPlacement
from service.core.moe.serving import serve
from service.core.moe.settings import ReplicaSplitting

__all__ = ["SweepPoint", "padded_fraction", "sweep"]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """Under one factor: rows of an expert (see `Admitted.capacity`), drops, rows, padding.

    `padded_fraction` is that of the rows that travel and are computed.
    """

    factor: float
    capacity_rows: int
    dropped_fraction: float
    fallback_fraction: float
    rerouted_fraction: float
    most_rank_rows: int
    padded_fraction: float


def sweep(
    assignments: Assignments,
    capacity: Capacity,
    factors: Sequence[float],
    placement: ExpertPlacement,
    splitting: ReplicaSplitting,
    *,
    expert_tensor: int = 1,
    node_of_source: npt.NDArray[np.int64],
) -> tuple[SweepPoint, ...]:
    """The capacity with each of the factors instead of its own.

    Raises InvalidInput where the policy has no capacity.
    """
    points = []
    total = max(1, assignments.total)
    for factor in factors:
        admitted = admit(assignments, replace(capacity, factor=factor))
        served = serve(
            admitted,
            assignments,
            placement,
            splitting,
            expert_tensor=expert_tensor,
            node_of_source=node_of_source,
        )
        points.append(
            SweepPoint(
                factor=factor,
                capacity_rows=admitted.capacity or 0,
                dropped_fraction=admitted.dropped_fraction,
                fallback_fraction=int(admitted.fallback.sum()) / total,
                rerouted_fraction=int(admitted.rerouted.sum()) / total,
                most_rank_rows=int(served.rank_rows.max(initial=0)),
                padded_fraction=padded_fraction(admitted),
            )
        )
    return tuple(points)


def padded_fraction(admitted: Admitted) -> float:
    """Of all rows that travel and are computed, the share that no token asked for; 0 of none."""
    rows = int(admitted.wire.sum())
    return 1 - int(admitted.kept.sum()) / rows if rows else 0.0
