"""Ranks in their order, their coordinates, and the device each stands on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.plans.plan import Degrees, Dimension, Placed, Placement

__all__ = ["MAX_RANKS", "Axis", "Layout", "check_order", "layout", "place_ranks"]

# Every answer echoes the placement rank by rank.
MAX_RANKS = 32_768


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a layout: ranks that differ by 1 in it lie `stride` apart."""

    dimension: Dimension
    degree: int
    stride: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Rank = sum of coordinate x stride; the innermost dimension has stride 1."""

    world_size: int
    pipeline: Axis
    replicas: tuple[Axis, ...]  # tensor, context, data

    def coordinates(self, rank: int) -> tuple[tuple[Dimension, int], ...]:
        """The coordinates of a rank, in the order of `Dimension`."""
        return tuple(
            [
                (axis.dimension, rank // axis.stride % axis.degree)
                for axis in (*self.replicas, self.pipeline)
            ]
        )

    def ranks_at(self, pipeline: int) -> list[int]:
        """The ranks of one pipeline rank: tensor varies fastest, then context, then data.

        Equal positions for two pipeline ranks have equal tensor, context and data coordinates.
        """
        ranks = [pipeline * self.pipeline.stride]
        for axis in self.replicas:
            if axis.degree > 1:
                steps = range(0, axis.degree * axis.stride, axis.stride)
                ranks = [rank + step for step in steps for rank in ranks]
        return ranks


def check_order(placement: Placement, degrees: Degrees) -> list[Fault]:
    """What is wrong with the order of dimensions, and with the number of ranks."""
    faults = []
    path = ("placement", "order")
    for dimension, count in Counter(placement.order).items():
        if count > 1:
            detail = f"{dimension.value} stands {count} times; each dimension stands once"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, path, detail))
    for dimension in Dimension:
        if dimension not in placement.order and degrees.of(dimension) > 1:
            detail = f"{dimension.value} has degree {degrees.of(dimension)}: give it a place"
            faults.append(Fault(FaultCode.MISSING_FIELD, path, detail))
    if degrees.world_size > MAX_RANKS:
        detail = (
            f"tensor x context x data x pipeline = {degrees.world_size} ranks; at most {MAX_RANKS}"
        )
        faults.append(Fault(FaultCode.WORK_BUDGET, ("parallelism",), detail))
    return faults


@lru_cache(maxsize=1024)
def layout(placement: Placement, degrees: Degrees) -> Layout:
    """Strides of an order that `check_order` has passed; dimensions left out come outermost."""
    axes: dict[Dimension, Axis] = {}
    stride = 1
    for dimension in (*placement.order, *Dimension):
        if dimension not in axes:
            degree = degrees.of(dimension)
            axes[dimension] = Axis(dimension, degree, stride)
            stride *= degree
    pipeline = axes.pop(Dimension.PIPELINE)
    return Layout(stride, pipeline, tuple(axes[d] for d in Dimension if d in axes))


def place_ranks(ranks: Layout, devices: Sequence[str] | None) -> tuple[Placed, ...]:
    """Rank r on the r-th device of the allocation; on none without an allocation.

    Raises `InvalidInput` when there are fewer devices than ranks.
    """
    world_size = ranks.world_size
    if devices is not None and len(devices) < world_size:
        detail = (
            f"tensor x context x data x pipeline = {world_size} ranks need as many devices; the "
            f"allocation has {len(devices)}"
        )
        path = ("placement", "devices")
        raise InvalidInput([Fault(FaultCode.TOO_FEW_DEVICES, path, detail)])
    return tuple(
        Placed(rank, ranks.coordinates(rank), None if devices is None else devices[rank])
        for rank in range(world_size)
    )
