"""What one microbatch costs on each stage: stated by the plan, or summed from a profile."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from service.core.amounts import Amount, SizeClasses, total
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.graph import Model
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
from service.core.profiles.profile import LayerCost, Point, Profile, Recompute

__all__ = ["FREE", "given_stages", "layer_costs", "measured_stages"]

# What a layer of kind `input` costs: the loader's time is no layer's.
FREE = LayerCost(
    forward_picoseconds=0,
    backward_picoseconds=0,
    backward_input_picoseconds=0,
    backward_weight_picoseconds=0,
    recompute_picoseconds=0,
    saved_activation_bytes=0,
    recomputed_activation_bytes=0,
    communication_known=True,
)


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
            costs.append(_with_recomputed(cost, layer.name, profile, point))
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


def _with_recomputed(cost: LayerCost, layer: str, profile: Profile, point: Point) -> LayerCost:
    """And what its recomputation makes: what the layer saves without one, less what it has kept.

    Unknown where either was not measured.
    """
    if not cost.recompute_picoseconds:
        return cost
    whole = profile.find(layer, replace(point, recompute=Recompute.NONE))
    if not isinstance(whole, LayerCost) or whole.saved_activation_bytes is None:
        return cost
    if cost.saved_activation_bytes is None:
        return cost
    again = max(0, whole.saved_activation_bytes - cost.saved_activation_bytes)
    return replace(cost, recomputed_activation_bytes=again)


def measured_stages(
    plan: Plan, model: Model, stage_of_layer: Sequence[int], costs: Sequence[Sequence[LayerCost]]
) -> tuple[ResolvedStage, ...]:
    """Sums over the layers of each stage; exact, as they are whole picoseconds.

    `costs` has those of each layer for each size class of the microbatches. Activation bytes of a
    stage are known when those of all its layers are.
    """
    layers: list[list[int]] = [[] for _ in range(max(stage_of_layer) + 1)]
    for position, stage in enumerate(stage_of_layer):
        layers[stage].append(position)
    backward = has_backward(plan)
    ranks = stage_ranks(plan) or ()
    stages = []
    for stage, held in enumerate(layers):
        parts = [[of_class[position] for position in held] for of_class in costs]

        def known(field: str, parts: list[list[LayerCost]] = parts) -> Amount | None:
            return _sum_if_known(parts, field)

        stages.append(
            ResolvedStage(
                stage=stage,
                ranks=tuple(way[stage] for way in ranks),
                layers=tuple(model.layers[position].name for position in held),
                forward_picoseconds=known("forward_picoseconds") or 0,
                backward_picoseconds=(known("backward_picoseconds") or 0) if backward else 0,
                backward_input_picoseconds=known("backward_input_picoseconds"),
                backward_weight_picoseconds=known("backward_weight_picoseconds"),
                recompute_picoseconds=(known("recompute_picoseconds") or 0) if backward else 0,
                pair_picoseconds=None,
                activation_bytes=known("saved_activation_bytes"),
                activation_deltas=None,
                recomputed_bytes=known("recomputed_activation_bytes") if backward else 0,
                provenance=Provenance.MEASURED,
            )
        )
    return tuple(stages)


def _sum_if_known(parts: Sequence[Sequence[LayerCost]], field: str) -> Amount | None:
    """Over the layers of a stage, class by class; None where it is not known of every layer."""
    sums = []
    for of_class in parts:
        found = [getattr(part, field) for part in of_class]
        if None in found:
            return None
        sums.append(sum(found))
    return total(tuple(sums))
