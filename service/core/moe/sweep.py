"""What a capacity factor trades: tokens dropped against rows of the busiest rank and padding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.moe.assignments import Assignments
from service.core.moe.capacity import admit
from service.core.moe.fates import Fates, all_fates, fates_of
from service.core.moe.overflow import Capacity
from service.core.moe.served import ExpertPlacement
from service.core.moe.serving import serve
from service.core.moe.settings import ReplicaSplitting

__all__ = ["SweepPoint", "sweep", "together"]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """Under one factor: rows of an expert (see `Admitted.capacity`), fates, and the most rows of a
    rank.
    """

    factor: float
    capacity_rows: int
    fates: Fates
    most_rank_rows: int


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
                fates=fates_of(admitted, assignments),
                most_rank_rows=int(served.rank_rows.max(initial=0)),
            )
        )
    return tuple(points)


def together(sweeps: Sequence[Sequence[SweepPoint]]) -> tuple[SweepPoint, ...]:
    """Sweeps over the same factors, of several steps or layers, as one."""
    return tuple(
        SweepPoint(
            points[0].factor,
            max(point.capacity_rows for point in points),
            all_fates(point.fates for point in points),
            max(point.most_rank_rows for point in points),
        )
        for points in zip(*sweeps, strict=True)
    )
