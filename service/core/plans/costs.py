"""What one microbatch costs on each stage: stated by the plan, or summed from a profile."""

from collections.abc import Sequence

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.graph import Model
from service.core.plans.plan import GivenStage, Plan, Provenance, ResolvedStage
from service.core.profiles.profile import LayerCost, Point, Profile, Recompute
from service.core.units import to_picoseconds

__all__ = ["FREE", "given_stages", "has_backward", "layer_costs", "measured_stages"]

# What a layer of kind `input` costs: the loader's time is no layer's.
FREE = LayerCost(
    forward_picoseconds=0,
    backward_picoseconds=0,
    recompute_picoseconds=0,
    saved_activation_bytes=0,
    communication_known=True,
)


def has_backward(plan: Plan) -> bool:
    """Whether the schedule of the plan runs backwards."""
    return plan.schedule.kind != "forward_only"


def given_stages(plan: Plan) -> tuple[ResolvedStage, ...]:
    """The stages a plan states itself.

    Raises `InvalidInput` with every fault: a number of stages other than pipeline x
    chunks_per_rank, times that are missing, doubled or out of range, and boundary fields that have
    no boundary or no forward counterpart.
    """
    stages = plan.stages or ()
    faults: list[Fault] = []
    expected = plan.degrees.pipeline * plan.schedule.chunks_per_rank
    if len(stages) != expected:
        detail = (
            f"pipeline {plan.degrees.pipeline} x chunks_per_rank {plan.schedule.chunks_per_rank} "
            f"= {expected} stages; {len(stages)} given"
        )
        faults.append(Fault(FaultCode.WRONG_LENGTH, ("costs", "stages"), detail))
    resolved = []
    for number, stage in enumerate(stages):
        path = ("costs", "stages", number)
        forward = _picoseconds(stage, "forward_seconds", path, faults)
        backward = recompute = 0
        if has_backward(plan):
            backward = _given_backward(stage, path, faults)
            recompute = _picoseconds(stage, "recompute_seconds", path, faults)
            if plan.recompute != Recompute.NONE.value and stage.recompute_seconds is None:
                detail = f"recompute is {plan.recompute}: say how long it takes on this stage"
                here = (*path, "recompute_seconds")
                faults.append(Fault(FaultCode.MISSING_FIELD, here, detail))
        faults += _check_boundary(stage, path, last=number == len(stages) - 1)
        resolved.append(
            ResolvedStage(
                stage=number,
                rank=number % plan.degrees.pipeline,
                layers=(),
                forward_picoseconds=forward,
                backward_picoseconds=backward,
                recompute_picoseconds=recompute,
                activation_bytes=stage.activation_bytes,
                provenance=Provenance.GIVEN,
            )
        )
    if faults:
        raise InvalidInput(faults)
    return tuple(resolved)


def _picoseconds(stage: GivenStage, field: str, path: Path, faults: list[Fault]) -> int:
    seconds = getattr(stage, field)
    if seconds is None:
        return 0
    try:
        return to_picoseconds(seconds, (*path, field))
    except InvalidInput as invalid:
        faults += invalid.faults
        return 0


def _given_backward(stage: GivenStage, path: Path, faults: list[Fault]) -> int:
    halves = ("backward_input_seconds", "backward_weight_seconds")
    given = [half for half in halves if getattr(stage, half) is not None]
    if stage.backward_seconds is not None:
        if given:
            detail = f"give either backward_seconds, or {' and '.join(halves)}"
            here = (*path, "backward_seconds")
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, here, detail))
        return _picoseconds(stage, "backward_seconds", path, faults)
    if not given:
        detail = f"the schedule has a backward: give backward_seconds, or {' and '.join(halves)}"
        faults.append(Fault(FaultCode.MISSING_FIELD, (*path, "backward_seconds"), detail))
    for half in halves:
        if given and half not in given:
            detail = f"{given[0]} is half of the backward: give this too"
            faults.append(Fault(FaultCode.MISSING_FIELD, (*path, half), detail))
    return sum(_picoseconds(stage, half, path, faults) for half in given)


def _check_boundary(stage: GivenStage, path: Path, *, last: bool) -> list[Fault]:
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


def layer_costs(plan: Plan, model: Model, profile: Profile, point: Point) -> list[LayerCost]:
    """The measured cost of each layer of the model at `point`, in execution order.

    Raises `InvalidInput`; layers that lack the same points share a fault.
    """
    costs: list[LayerCost] = []
    faults: list[Fault] = []
    missing: dict[tuple[Point, ...], list[str]] = {}
    without_backward: list[str] = []
    for layer in model.layers:
        if layer.is_input:
            costs.append(FREE)
            continue
        cost = profile.find(layer.name, point)
        if cost is None:
            missing.setdefault(profile.points(layer.name), []).append(layer.name)
        elif isinstance(cost, Fault):
            faults.append(cost)
        else:
            costs.append(cost)
            if cost.backward_picoseconds is None and has_backward(plan):
                without_backward.append(layer.name)
    faults += [profile.missing(layers, point) for layers in missing.values()]
    if without_backward:
        more = f" and {len(without_backward) - 3} more" if len(without_backward) > 3 else ""
        detail = (
            f"no backward was measured for {', '.join(without_backward[:3])}{more} at {point}; "
            "the schedule has one"
        )
        faults.append(Fault(FaultCode.MISSING_PROFILE_POINT, (), detail))
    if faults:
        raise InvalidInput(fault.under("costs", "profile") for fault in faults)
    return costs


def measured_stages(
    plan: Plan, model: Model, stage_of_layer: Sequence[int], costs: Sequence[LayerCost]
) -> tuple[ResolvedStage, ...]:
    """Sums over the layers of each stage; exact, as they are whole picoseconds.

    Activation bytes of a stage are known when those of all its layers are.
    """
    layers: list[list[int]] = [[] for _ in range(max(stage_of_layer) + 1)]
    for position, stage in enumerate(stage_of_layer):
        layers[stage].append(position)
    backward = has_backward(plan)
    stages = []
    for stage, held in enumerate(layers):
        parts = [costs[position] for position in held]
        saved = [part.saved_activation_bytes for part in parts]
        known = [size for size in saved if size is not None]
        stages.append(
            ResolvedStage(
                stage=stage,
                rank=stage % plan.degrees.pipeline,
                layers=tuple(model.layers[position].name for position in held),
                forward_picoseconds=sum(part.forward_picoseconds for part in parts),
                backward_picoseconds=sum(part.backward_picoseconds or 0 for part in parts)
                if backward
                else 0,
                recompute_picoseconds=sum(part.recompute_picoseconds for part in parts)
                if backward
                else 0,
                activation_bytes=sum(known) if len(known) == len(saved) else None,
                provenance=Provenance.MEASURED,
            )
        )
    return tuple(stages)
