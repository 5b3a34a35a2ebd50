"""What a plan states of its stages, read as amounts, and what can be wrong with it."""

from collections.abc import Sequence

from service.core.amounts import Amount, SizeClasses, at_class, combine, smallest, total
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.plans.plan import (
    ActivationChange,
    GivenBytes,
    GivenSeconds,
    GivenStage,
    Plan,
    ResolvedStage,
)
from service.core.units import to_picoseconds, to_seconds

__all__ = [
    "FOR_EVERY_LENGTH",
    "check_boundary",
    "check_deltas",
    "check_lengths",
    "check_pairs",
    "check_recomputed",
    "read_bytes",
    "read_deltas",
    "read_seconds",
]

# Times of computing, which differ where sequence lengths do, and what else a stage may have a list
# for: where these are one number for all lengths, an answer says so.
_COMPUTE = (
    "forward_seconds",
    "backward_seconds",
    "backward_input_seconds",
    "backward_weight_seconds",
    "recompute_seconds",
    "pair_seconds",
)
FOR_EVERY_LENGTH = (
    "activation_bytes",
    "recomputed_activation_bytes",
    "boundary_bytes",
    "backward_boundary_bytes",
    "transfer_seconds",
    "backward_transfer_seconds",
)


def read_seconds(
    seconds: GivenSeconds | None, path: Path, sizes: SizeClasses, faults: list[Fault]
) -> Amount | None:
    """A time or one for each microbatch, in picoseconds; 0 where it adds to the faults.

    Nothing is said of a list of the wrong length: that is told once for all lists.
    """
    if seconds is None:
        return None
    if not isinstance(seconds, tuple):
        return _one(seconds, path, faults)
    found = [_one(each, (*path, index), faults) for index, each in enumerate(seconds)]
    return sizes.amount(found) if len(found) == sizes.microbatches else 0


def _one(seconds: float, path: Path, faults: list[Fault]) -> int:
    try:
        return to_picoseconds(seconds, path)
    except InvalidInput as invalid:
        faults += invalid.faults
        return 0


def read_bytes(given: GivenBytes | None, sizes: SizeClasses) -> Amount | None:
    """Bytes by size class; 0 for a list of the wrong length, which is told elsewhere."""
    if not isinstance(given, tuple):
        return given
    return sizes.amount(given) if len(given) == sizes.microbatches else 0


def read_deltas(given: ActivationChange | None, sizes: SizeClasses) -> ActivationChange | None:
    """Signed bytes by size class."""
    if given is None:
        return None
    return ActivationChange(
        read_bytes(given.forward_bytes, sizes) or 0,
        read_bytes(given.backward_input_bytes, sizes) or 0,
        read_bytes(given.backward_weight_bytes, sizes) or 0,
        read_bytes(given.recompute_bytes, sizes),
    )


def check_boundary(stage: GivenStage, path: Path, *, last: bool) -> list[Fault]:
    """Boundary fields that have no boundary, or no forward counterpart."""
    faults = []
    for forward, backward in (
        ("boundary_bytes", "backward_boundary_bytes"),
        ("transfer_seconds", "backward_transfer_seconds"),
    ):
        given = [name for name in (forward, backward) if getattr(stage, name) is not None]
        if last:
            detail = "the last stage hands nothing on: leave this out"
            faults += [Fault(FaultCode.INCONSISTENT, (*path, name), detail) for name in given]
        elif given == [backward]:
            detail = f"{backward} stands beside {forward}: give this too"
            faults.append(Fault(FaultCode.MISSING_FIELD, (*path, forward), detail))
    return faults


def check_lengths(stage: GivenStage, path: Path, microbatches: int) -> list[Fault]:
    """Times of a stage that are one number though sequence lengths differ; 0 is one for all."""
    detail = (
        "the sequence lengths differ, and one number does not say which of them it is for: give a "
        f"list with a number for each of {microbatches} microbatches, or price the plan with a "
        "profile"
    )
    return [
        Fault(FaultCode.INCONSISTENT, (*path, name), detail)
        for name in _COMPUTE
        if isinstance(seconds := getattr(stage, name), int | float) and seconds
    ]


def check_deltas(
    stage: GivenStage, deltas: ActivationChange | None, path: Path, sizes: SizeClasses
) -> list[Fault]:
    """Deltas beside a size, and deltas that leave something behind or free what is not there.

    `deltas` are those of the stage by size class; the first microbatch at fault is named.
    """
    if deltas is None:
        return []
    here = (*path, "activation_deltas")
    faults = []
    for given, part in (
        ("activation_bytes", "forward_bytes"),
        ("recomputed_activation_bytes", "recompute_bytes"),
    ):
        if getattr(stage, given) is not None:
            detail = f"give either {given} or activation_deltas, whose {part} they are"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, here, detail))
    after_input = total(
        deltas.forward_bytes, deltas.recompute_bytes or 0, deltas.backward_input_bytes
    )
    left = total(after_input, deltas.backward_weight_bytes)
    least = combine(min, deltas.forward_bytes, after_input)
    for number, microbatch in enumerate(sizes.first):
        remains, lowest = at_class(left, number), at_class(least, number)
        of = f" (microbatch {microbatch})" if sizes.count > 1 else ""
        if remains and not any(fault.code is FaultCode.INCONSISTENT for fault in faults):
            detail = f"what is added is freed in the end: they all sum to 0, not {remains}"
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail + of))
        if lowest < 0 and not any(fault.code is FaultCode.OUT_OF_RANGE for fault in faults):
            detail = (
                "more is freed than is there: forward_bytes, then with recompute_bytes and "
                "backward_input_bytes, >= 0"
            )
            faults.append(Fault(FaultCode.OUT_OF_RANGE, here, detail + of))
    return faults


def check_recomputed(
    stage: GivenStage, deltas: ActivationChange | None, recompute: Amount, path: Path
) -> list[Fault]:
    """Bytes that are made again on a stage that recomputes nothing, or beside none that are kept.

    `recompute` is how long it recomputes, in picoseconds.
    """
    beside = stage.recomputed_activation_bytes
    if deltas is not None and deltas.recompute_bytes is not None:
        here: Path = (*path, "activation_deltas", "recompute_bytes")
    elif beside is not None:
        here = (*path, "recomputed_activation_bytes")
    else:
        return []
    faults = []
    if not recompute:
        detail = "the stage recomputes nothing: say how long that takes, or leave this out"
        faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
    if beside is not None and deltas is None and stage.activation_bytes is None:
        detail = "recomputed_activation_bytes stand beside what is kept until then: give this too"
        faults.append(Fault(FaultCode.MISSING_FIELD, (*path, "activation_bytes"), detail))
    return faults


def check_pairs(plan: Plan, stages: Sequence[ResolvedStage], sizes: SizeClasses) -> list[Fault]:
    """Times of fused pairs: of all stages or none, and none below that of either half.

    The forward of stage s is paired with the backward of stage S-1-s, in a V as in two directions.
    In an order that is written out it may be any, so only the forward is held against it. Which
    microbatch the backward is of is the schedule's to say, so of unequal ones the shortest counts.
    """
    given = [stage.pair_picoseconds is not None for stage in stages]
    if not any(given):
        return []
    faults = []
    for stage in stages:
        path = ("costs", "stages", stage.stage, "pair_seconds")
        if stage.pair_picoseconds is None:
            detail = "other stages say how long their pairs take: give this too"
            faults.append(Fault(FaultCode.MISSING_FIELD, path, detail))
            continue
        backward = 0
        if plan.schedule.order is None:
            backward = smallest(stages[len(stages) - 1 - stage.stage].backward_picoseconds)
        for number, microbatch in enumerate(sizes.first):
            least = max(at_class(stage.forward_picoseconds, number), backward)
            if at_class(stage.pair_picoseconds, number) < least:
                listed = isinstance(stage.pair_picoseconds, tuple)
                detail = (
                    "a pair takes at least as long as the longer of its forward and its backward: "
                    f"{to_seconds(least)!r} s"
                )
                where = (*path, microbatch) if listed else path
                faults.append(Fault(FaultCode.INCONSISTENT, where, detail))
                if not listed:
                    break
    return faults
