"""What one microbatch costs on each stage, as the plan states it."""

from collections.abc import Callable

from service.core.amounts import Amount, SizeClasses, total
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.plans.given import (
    check_boundary,
    check_deltas,
    check_lengths,
    check_pairs,
    check_recomputed,
    read_bytes,
    read_deltas,
    read_seconds,
)
from service.core.plans.plan import GivenStage, Plan, Provenance, ResolvedStage
from service.core.plans.schedule import (
    has_backward,
    multiple_of_chunks,
    plan_family,
    splits_backward,
    stage_count,
    stage_ranks,
)
from service.core.plans.workload import lengths_differ
from service.core.profiles.measurement import Recompute

__all__ = ["given_stages"]


def given_stages(plan: Plan, sizes: SizeClasses) -> tuple[ResolvedStage, ...]:
    """The stages a plan states itself, of a plan whose schedule is legal.

    Lists by microbatch have an entry for each, or count as zero here.

    Raises `InvalidInput` with every fault: another number of stages than the schedule runs, times
    that are missing, doubled or out of range, boundary fields that have no boundary or no forward
    counterpart, activation deltas that don't add up.
    """
    stages = plan.stages or ()
    faults: list[Fault] = []
    expected = stage_count(plan)
    ranks = stage_ranks(plan)
    if len(stages) != expected:
        detail = (
            f"pipeline {plan.degrees.pipeline} x chunks_per_rank {plan.schedule.chunks_per_rank} "
            f"= {expected} stages{multiple_of_chunks(plan, len(stages))}; {len(stages)} given"
            if plan.schedule.order is None
            else f"the order has {expected} stages; {len(stages)} given"
        )
        faults.append(Fault(FaultCode.WRONG_LENGTH, ("costs", "stages"), detail))
        ranks = None
    resolved = [
        _given_stage(
            plan,
            number,
            () if ranks is None else tuple(way[number] for way in ranks),
            sizes,
            faults,
        )
        for number in range(len(stages))
    ]
    if plan_family(plan).has_pairs and not faults:
        faults += check_pairs(plan, resolved, sizes)
    if faults:
        raise InvalidInput(faults)
    return tuple(resolved)


def _given_stage(
    plan: Plan, number: int, ranks: tuple[int, ...], sizes: SizeClasses, faults: list[Fault]
) -> ResolvedStage:
    stages = plan.stages or ()
    stage = stages[number]
    path = ("costs", "stages", number)

    def picoseconds(field: str) -> Amount:
        return read_seconds(getattr(stage, field), (*path, field), sizes, faults) or 0

    forward = picoseconds("forward_seconds")
    backward: Amount = 0
    recompute: Amount = 0
    halves = pair = None
    if has_backward(plan):
        backward, halves = _given_backward(
            stage, path, picoseconds, faults, split=splits_backward(plan)
        )
        recompute = picoseconds("recompute_seconds")
        if plan.recompute != Recompute.NONE.value and stage.recompute_seconds is None:
            detail = f"recompute is {plan.recompute}: say how long it takes on this stage"
            here = (*path, "recompute_seconds")
            faults.append(Fault(FaultCode.MISSING_FIELD, here, detail))
    if stage.pair_seconds is not None:
        pair = picoseconds("pair_seconds")
    if lengths_differ(plan):
        faults += check_lengths(stage, path, plan.workload.microbatches)
    faults += check_boundary(stage, path, last=number == len(stages) - 1)
    deltas = read_deltas(stage.activation_deltas, sizes)
    faults += check_deltas(stage, deltas, path, sizes)
    if has_backward(plan):
        faults += check_recomputed(stage, deltas, recompute, path)
    kept = read_bytes(stage.activation_bytes, sizes)
    again = read_bytes(stage.recomputed_activation_bytes, sizes)
    if deltas is not None:
        kept, again = deltas.forward_bytes, deltas.recompute_bytes
    return ResolvedStage(
        stage=number,
        ranks=ranks,
        layers=(),
        forward_picoseconds=forward,
        backward_picoseconds=backward,
        backward_input_picoseconds=None if halves is None else halves[0],
        backward_weight_picoseconds=None if halves is None else halves[1],
        recompute_picoseconds=recompute,
        pair_picoseconds=pair,
        activation_bytes=kept,
        activation_deltas=deltas,
        recomputed_bytes=again if recompute else 0,
        provenance=Provenance.GIVEN,
    )


def _given_backward(
    stage: GivenStage,
    path: Path,
    picoseconds: Callable[[str], Amount],
    faults: list[Fault],
    *,
    split: bool,
) -> tuple[Amount, tuple[Amount, Amount] | None]:
    """The whole backward, and its two halves where they are given."""
    halves = ("backward_input_seconds", "backward_weight_seconds")
    given = [half for half in halves if getattr(stage, half) is not None]
    if stage.backward_seconds is not None:
        if given:
            detail = f"give either backward_seconds, or {' and '.join(halves)}"
            here = (*path, "backward_seconds")
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, here, detail))
        elif split:
            detail = f"the schedule splits the backward: give {' and '.join(halves)} in its place"
            here = (*path, "backward_seconds")
            faults.append(Fault(FaultCode.MISSING_FIELD, here, detail))
        return picoseconds("backward_seconds"), None
    if not given:
        either = "" if split else "backward_seconds, or "
        detail = f"the schedule has a backward: give {either}{' and '.join(halves)}"
        here = (*path, halves[0] if split else "backward_seconds")
        faults.append(Fault(FaultCode.MISSING_FIELD, here, detail))
    for half in halves:
        if given and half not in given:
            detail = f"{given[0]} is half of the backward: give this too"
            faults.append(Fault(FaultCode.MISSING_FIELD, (*path, half), detail))
    of_inputs, of_weights = (picoseconds(half) for half in halves)
    both = (of_inputs, of_weights) if len(given) == 2 else None
    return total(of_inputs, of_weights), both
