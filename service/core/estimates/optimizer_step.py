"""How long the optimizer's step takes on each pipeline rank: as given, or by the bytes it moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from service.core.estimates.reduction.parts import HeldWeights, replicas
from service.core.plans.gradient_reduction import TimeOrigin, picoseconds_of
from service.core.plans.placement import layout
from service.core.plans.plan import ResolvedPlan
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["OptimizerStep", "optimizer_steps"]


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """The step of one pipeline rank, in picoseconds; `bytes` is what it moves, None if given.

    A given time has no bound but itself; a computed one is its own bound, rounded.
    """

    rank: int
    bytes: int | None
    picoseconds: int
    bound_picoseconds: int
    origin: TimeOrigin


def optimizer_steps(
    resolved: ResolvedPlan, held: Sequence[tuple[HeldWeights, ...] | None]
) -> tuple[OptimizerStep, ...] | None:
    """Of each pipeline rank; None where a plan gives no time and the bytes can't be priced.

    `held` has the weights of each stage. Each number that belongs to a parameter is read or written
    once, at the nominal memory bandwidth of the slowest device of the rank: no step is quicker.
    Ranks that split the optimizer's state move their share, rounded up.
    """
    training = resolved.plan.training
    if training is None:
        return None
    ranks = range(resolved.plan.degrees.pipeline)
    if training.optimizer_step_seconds is not None:
        times = [picoseconds_of(training.optimizer_step_seconds, rank) for rank in ranks]
        return tuple(
            OptimizerStep(rank, None, time, time, TimeOrigin.GIVEN)
            for rank, time in zip(ranks, times, strict=True)
        )
    steps = []
    for rank in ranks:
        moved = _moved(resolved, held, rank)
        rate = _slowest_memory(resolved, rank)
        if moved is None or (rate is None and moved):
            return None
        exact = Fraction(0)
        if rate is not None:
            exact = Fraction(moved * PICOSECONDS_PER_SECOND) / Fraction(rate)
        steps.append(OptimizerStep(rank, moved, ceil(exact), int(exact), TimeOrigin.COMPUTED))
    return tuple(steps)


def _moved(
    resolved: ResolvedPlan, held: Sequence[tuple[HeldWeights, ...] | None], rank: int
) -> int | None:
    """Bytes that the step of one rank reads and writes; None where some stage's are unknown."""
    training = resolved.plan.training
    total = 0
    for stage in resolved.stages:
        if rank not in stage.ranks:
            continue
        of_stage = held[stage.stage]
        if of_stage is None:
            return None
        for one in of_stage:
            if one.step_bytes is None:
                return None
            shares = 1
            if training is not None and training.optimizer_sharding.splits_optimizer:
                shares = replicas(resolved, one)
            total += -(-one.step_bytes // shares)
    return total


def _slowest_memory(resolved: ResolvedPlan, rank: int) -> float | None:
    """The least bandwidth among the devices of a pipeline rank; None where one is unknown."""
    if resolved.cluster is None:
        return None
    rates = []
    for number in layout(resolved.plan.placement, resolved.plan.degrees).ranks_at(rank):
        device = resolved.placement[number].device
        found = (
            None if device is None else resolved.cluster.vertices[device].memory_bytes_per_second
        )
        if found is None:
            return None
        rates.append(found)
    return min(rates)
