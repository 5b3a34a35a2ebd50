"""The counts that a schedule is made for, and the ranks that its stages live on."""

from dataclasses import dataclass
from enum import StrEnum

from service.core.schedules.order_costs import OrderCosts

__all__ = [
    "Backward",
    "Placement",
    "Shape",
    "loop_placement",
    "near_even",
    "two_way_placement",
    "v_placement",
]

# The rank of each stage, for each direction: placement[direction][stage].
Placement = tuple[tuple[int, ...], ...]


class Backward(StrEnum):
    """Whether a schedule runs backwards, and whether it splits any of them in two."""

    NONE = "none"
    WHOLE = "whole"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class Shape:
    """P ranks, M microbatches, v chunks (stages) on each rank.

    `group_size` is for schedules that take microbatches in groups; None is their default. `order`
    is what each rank runs, written out, for the schedule that is given by its order.
    `memory_limit_activations` and `costs` are for schedules whose order follows from them: the most
    that a rank keeps, in what one microbatch keeps of it at the most, and times and memory of each
    stage. None are their defaults.
    """

    ranks: int
    microbatches: int
    chunks_per_rank: int = 1
    group_size: int | None = None
    order: tuple[str, ...] | None = None
    memory_limit_activations: int | None = None
    costs: OrderCosts | None = None


def loop_placement(shape: Shape) -> Placement:
    """Stage s on rank s mod P: the stages go round the ranks, once for each chunk."""
    stages = shape.ranks * shape.chunks_per_rank
    return (tuple(stage % shape.ranks for stage in range(stages)),)


def v_placement(shape: Shape) -> Placement:
    """Stages r and 2P-1-r on rank r: down the ranks and up again, the turn on the last rank."""
    down = tuple(range(shape.ranks))
    return (down + down[::-1],)


def two_way_placement(shape: Shape) -> Placement:
    """Stage s on rank s for one half of the microbatches, on rank P-1-s for the other half."""
    down = tuple(range(shape.ranks))
    return (down, down[::-1])


def near_even(number: int) -> str:
    """The even numbers, at least 2, that are nearest to a number of at least 1, in words."""
    return " or ".join(
        str(even) for even in range(number - 1, number + 2) if even and even % 2 == 0
    )
