"""What one microbatch costs on each stage: stated by the plan, or summed from a profile."""

from collections.abc import Sequence

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.graph import Model
from service.core.plans.given import check_boundary, check_deltas, check_pairs
from service.core.plans.plan import GivenStage, Plan, Provenance, ResolvedStage
from service.core.plans.schedule import (
    has_backward,
    plan_family,
    splits_backward,
    stage_count,
    stage_ranks,
)
from service.core.profiles.profile import LayerCost, Point, Profile, Recompute
from service.core.units import to_picoseconds

__all__ = ["FREE", "given_stages", "layer_costs", "measured_stages"]

# What a layer of kind `input` costs: the loader's time is no layer's.
FREE = LayerCost(
    forward_picoseconds=0,
    backward_picoseconds=0,
    backward_input_picoseconds=0,
    backward_weight_picoseconds=0,
    recompute_picoseconds=0,
    saved_activation_bytes=0,
    communication_known=True,
)


def given_stages(plan: Plan) -> tuple[ResolvedStage, ...]:
    """The stages a plan states itself, of a plan whose schedule is legal.

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
            f"= {expected} stages; {len(stages)} given"
            if plan.schedule.order is None
            else f"the order has {expected} stages; {len(stages)} given"
        )
        faults.append(Fault(FaultCode.WRONG_LENGTH, ("costs", "stages"), detail))
        ranks = None
    resolved = [
        _given_stage(
            plan, number, () if ranks is None else tuple(way[number] for way in ranks), faults
        )
        for number in range(len(stages))
    ]
    if plan_family(plan).has_pairs and not faults:
        faults += check_pairs(plan, resolved)
    if faults:
        raise InvalidInput(faults)
    return tuple(resolved)


def _given_stage(
    plan: Plan, number: int, ranks: tuple[int, ...], faults: list[Fault]
) -> ResolvedStage:
    stages = plan.stages or ()
    stage = stages[number]
    path = ("costs", "stages", number)
    forward = _picoseconds(stage, "forward_seconds", path, faults)
    backward, halves, recompute, pair = 0, None, 0, None
    if has_backward(plan):
        backward, halves = _given_backward(stage, path, faults, split=splits_backward(plan))
        recompute = _picoseconds(stage, "recompute_seconds", path, faults)
        if plan.recompute != Recompute.NONE.value and stage.recompute_seconds is None:
            detail = f"recompute is {plan.recompute}: say how long it takes on this stage"
            here = (*path, "recompute_seconds")
            faults.append(Fault(FaultCode.MISSING_FIELD, here, detail))
    if stage.pair_seconds is not None:
        pair = _picoseconds(stage, "pair_seconds", path, faults)
    faults += check_boundary(stage, path, last=number == len(stages) - 1)
    faults += check_deltas(stage, path)
    deltas = stage.activation_deltas
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
        activation_bytes=stage.activation_bytes if deltas is None else deltas.forward_bytes,
        activation_deltas=deltas,
        provenance=Provenance.GIVEN,
    )


def _picoseconds(stage: GivenStage, field: str, path: Path, faults: list[Fault]) -> int:
    seconds = getattr(stage, field)
    if seconds is None:
        return 0
    try:
        return to_picoseconds(seconds, (*path, field))
    except InvalidInput as invalid:
        faults += invalid.faults
        return 0


def _given_backward(
    stage: GivenStage, path: Path, faults: list[Fault], *, split: bool
) -> tuple[int, tuple[int, int] | None]:
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
        return _picoseconds(stage, "backward_seconds", path, faults), None
    if not given:
        either = "" if split else "backward_seconds, or "
        detail = f"the schedule has a backward: give {either}{' and '.join(halves)}"
        here = (*path, halves[0] if split else "backward_seconds")
        faults.append(Fault(FaultCode.MISSING_FIELD, here, detail))
    for half in halves:
        if given and half not in given:
            detail = f"{given[0]} is half of the backward: give this too"
            faults.append(Fault(FaultCode.MISSING_FIELD, (*path, half), detail))
    found = [_picoseconds(stage, half, path, faults) for half in halves]
    return sum(found), (found[0], found[1]) if len(given) == 2 else None


def layer_costs(plan: Plan, model: Model, profile: Profile, point: Point) -> list[LayerCost]:
    """The measured cost of each layer of the model at `point`, in execution order.

    Raises `InvalidInput`; layers that lack the same points share a fault.
    """
    costs: list[LayerCost] = []
    faults: list[Fault] = []
    missing: dict[tuple[Point, ...], list[str]] = {}
    without: list[str] = []
    split = splits_backward(plan)
    backward = has_backward(plan)
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
            needed = cost.backward_input_picoseconds if split else cost.backward_picoseconds
            if needed is None and backward:
                without.append(layer.name)
    faults += [profile.missing(layers, point) for layers in missing.values()]
    if without:
        more = f" and {len(without) - 3} more" if len(without) > 3 else ""
        what, why = ("split of the backward", "splits it") if split else ("backward", "has one")
        detail = (
            f"no {what} was measured for {', '.join(without[:3])}{more} at {point}; "
            f"the schedule {why}"
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
    ranks = stage_ranks(plan) or ()
    stages = []
    for stage, held in enumerate(layers):
        parts = [costs[position] for position in held]
        stages.append(
            ResolvedStage(
                stage=stage,
                ranks=tuple(way[stage] for way in ranks),
                layers=tuple(model.layers[position].name for position in held),
                forward_picoseconds=sum(part.forward_picoseconds for part in parts),
                backward_picoseconds=sum(part.backward_picoseconds or 0 for part in parts)
                if backward
                else 0,
                backward_input_picoseconds=_sum_if_known(
                    [part.backward_input_picoseconds for part in parts]
                ),
                backward_weight_picoseconds=_sum_if_known(
                    [part.backward_weight_picoseconds for part in parts]
                ),
                recompute_picoseconds=sum(part.recompute_picoseconds for part in parts)
                if backward
                else 0,
                pair_picoseconds=None,
                activation_bytes=_sum_if_known([part.saved_activation_bytes for part in parts]),
                activation_deltas=None,
                provenance=Provenance.MEASURED,
            )
        )
    return tuple(stages)


def _sum_if_known(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
