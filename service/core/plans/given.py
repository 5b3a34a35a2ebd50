"""What can be wrong with the stages that a plan states itself, beyond single times."""

from collections.abc import Sequence

from service.core.errors import Fault, FaultCode, Path
from service.core.plans.plan import GivenStage, Plan, ResolvedStage
from service.core.units import to_seconds

__all__ = ["check_boundary", "check_deltas", "check_pairs"]


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


def check_deltas(stage: GivenStage, path: Path) -> list[Fault]:
    """Deltas beside a size, and deltas that leave something behind or free what is not there."""
    deltas = stage.activation_deltas
    if deltas is None:
        return []
    here = (*path, "activation_deltas")
    faults = []
    if stage.activation_bytes is not None:
        detail = "give either activation_bytes or activation_deltas, whose forward_bytes they are"
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, here, detail))
    after_input = deltas.forward_bytes + deltas.backward_input_bytes
    left = after_input + deltas.backward_weight_bytes
    if left:
        detail = f"what the forward adds is freed in the end: the three sum to 0, not {left}"
        faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
    if deltas.forward_bytes < 0 or after_input < 0:
        detail = "more is freed than is there: forward_bytes, then with backward_input_bytes, >= 0"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, here, detail))
    return faults


def check_pairs(plan: Plan, stages: Sequence[ResolvedStage]) -> list[Fault]:
    """Times of fused pairs: of all stages or none, and none below that of either half.

    The forward of stage s is paired with the backward of stage S-1-s, in a V as in two directions.
    In an order that is written out it may be any, so only the forward is held against it.
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
        least = stage.forward_picoseconds
        if plan.schedule.order is None:
            partner = stages[len(stages) - 1 - stage.stage]
            least = max(least, partner.backward_picoseconds)
        if stage.pair_picoseconds < least:
            detail = (
                "a pair takes at least as long as the longer of its forward and its backward: "
                f"{to_seconds(least)!r} s"
            )
            faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    return faults
