"""How long the optimizer's step takes on each pipeline rank: as given, or by the bytes it moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.estimates.reduction.parts import HeldBytes, replicas
from service.core.plans.gradient_reduction import TimeOrigin, picoseconds_of
from service.core.plans.payloads import MAX_BYTES
from service.core.plans.placement import layout
from service.core.plans.plan import ResolvedPlan
from service.core.units import MAX_SECONDS, PICOSECONDS_PER_SECOND

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
    resolved: ResolvedPlan, held: Sequence[tuple[HeldBytes, ...] | None]
) -> tuple[OptimizerStep, ...] | None:
    """Of each pipeline rank; None where a plan gives no time and the bytes can't be priced.

    `held` has the weights of each stage. Each number that belongs to a parameter is read or written
    once, at the nominal memory bandwidth of the slowest device of the rank: no step is quicker.
    Ranks that split the optimizer's state move their share, rounded up. Raises `InvalidInput` for
    more than 2**53 - 1 bytes, and for a step of more than `MAX_SECONDS`.
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
    for rank, moved in enumerate(_moved(resolved, held)):
        rate = _slowest_memory(resolved, rank)
        if moved is None or (rate is None and moved):
            return None
        if moved > MAX_BYTES:
            detail = f"a step that moves {moved} bytes on a rank; at most {MAX_BYTES} are counted"
            raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("training",), detail)])
        exact = Fraction(0)
        if rate is not None:
            exact = Fraction(moved * PICOSECONDS_PER_SECOND) / Fraction(rate)
        if exact > MAX_SECONDS * PICOSECONDS_PER_SECOND:
            detail = f"an optimizer's step of more than {MAX_SECONDS:g} s: fewer parameters a rank"
            raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("training",), detail)])
        steps.append(OptimizerStep(rank, moved, ceil(exact), int(exact), TimeOrigin.COMPUTED))
    return tuple(steps)


def _moved(
    resolved: ResolvedPlan, held: Sequence[tuple[HeldBytes, ...] | None]
) -> list[int | None]:
    """Bytes that the step of each rank reads and writes; None where some stage's are unknown."""
    training = resolved.plan.training
    shards = training is not None and training.optimizer_sharding.splits_optimizer
    totals: list[int | None] = [0] * resolved.plan.degrees.pipeline
    for stage, of_stage in zip(resolved.stages, held, strict=True):
        sizes = None if of_stage is None else [one.step_bytes for one in of_stage]
        for rank in set(stage.ranks):
            before = totals[rank]
            if of_stage is None or sizes is None or None in sizes or before is None:
                totals[rank] = None
                continue
            totals[rank] = before + sum(
                -(-(one.step_bytes or 0) // (replicas(resolved, one) if shards else 1))
                for one in of_stage
            )
    return totals


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
