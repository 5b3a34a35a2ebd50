"""What one microbatch costs on each stage, summed from what a profile says of its layers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import fsum, sqrt
from operator import attrgetter

from service.core.amounts import Amount, SizeClasses, at_class, total
from service.core.errors import Fault, FaultCode, InvalidInput, some_of
from service.core.models.graph import Model
from service.core.plans.approximations import LayerLookup
from service.core.plans.partition import layers_by_stage
from service.core.plans.plan import CostSources, Plan, ResolvedStage, Statement
from service.core.plans.recompute import layer_policies
from service.core.plans.schedule import has_backward, splits_backward, stage_ranks
from service.core.plans.statements import counted
from service.core.plans.workload import Batch
from service.core.profiles.interpolation import UnmeasuredShapes
from service.core.profiles.measurement import (
    NO_COMMUNICATION,
    Communication,
    LayerCost,
    Point,
    Recompute,
)
from service.core.profiles.profile import Profile
from service.core.profiles.provenance import Provenance, weakest

__all__ = ["FREE", "PricedLayers", "check_lookups", "layer_costs", "measured_stages"]

# Costs of layers that are looked up for one plan, each at every sequence length.
MAX_LOOKUPS = 200_000

# What a layer of kind `input` costs: the loader's time is no layer's.
FREE = LayerCost(
    forward_picoseconds=0,
    backward_picoseconds=0,
    backward_input_picoseconds=0,
    backward_weight_picoseconds=0,
    recompute_picoseconds=0,
    communication=NO_COMMUNICATION,
    saved_activation_bytes=0,
    recomputed_activation_bytes=0,
    workspace_bytes=0,
    provenance=Provenance.GIVEN,
)


@dataclass(frozen=True, slots=True, eq=False)
class PricedLayers:
    """The cost of each layer, in execution order, for each size class, and what is said of it.

    `policies` says which activations each layer drops.
    """

    costs: list[list[LayerCost]]
    policies: tuple[Recompute, ...]
    assumptions: tuple[Statement, ...]
    left_out: tuple[Statement, ...] = ()


def check_lookups(model: Model, sizes: SizeClasses, *, tensors: bool = False) -> None:
    """Raise `InvalidInput` where layers (and tensors) at so many sequence lengths are too many."""
    count = len(model.layers) + len(model.tensors) * tensors
    if count * sizes.count > MAX_LOOKUPS:
        what = "layers and tensors" if tensors else "layers"
        detail = (
            f"{sizes.count} sequence lengths of {count} {what}; at most {MAX_LOOKUPS} "
            "costs are looked up: use fewer different lengths"
        )
        path = ("workload", "microbatch_sequence_lengths")
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, path, detail)])


def layer_costs(
    plan: Plan, model: Model, profile: Profile, batch: Batch, sizes: SizeClasses
) -> PricedLayers:
    """What the profile says of each layer.

    Raises `InvalidInput` with every fault of every class; layers that lack the same points share
    one.
    """
    check_lookups(model, sizes)
    policies = layer_policies(plan, model)
    faults: list[Fault] = []
    costs = []
    lookup = LayerLookup(profile, plan.unmeasured_shapes or UnmeasuredShapes.INTERPOLATE)
    for number in range(sizes.count):
        point = _point(plan, batch, number)
        points = [replace(point, recompute=policy) for policy in policies]
        try:
            costs.append(_at_points(plan, model, lookup, points, faults))
        except InvalidInput as too_much:
            faults += too_much.faults
            break
    if faults:
        raise InvalidInput(fault.under("costs", "profile") for fault in faults)
    return PricedLayers(costs, policies, lookup.statements(), _spread_left_out(costs))


def _spread_left_out(costs: Sequence[Sequence[LayerCost]]) -> tuple[Statement, ...]:
    silent = sum(
        any(cost.work_picoseconds and cost.relative_deviation is None for cost in of_layer)
        for of_layer in zip(*costs, strict=True)
    )
    if not silent:
        return ()
    layers = counted(silent, "layer that was", "layers that were")
    detail = f"how much the time of {layers} measured without a spread varies from run to run"
    return (Statement("cost_spread", detail),)


def _point(plan: Plan, batch: Batch, number: int) -> Point:
    if batch.microbatch_size is None:
        raise ValueError("a plan with a profile has a microbatch size")
    length = batch.rank_sequence_length
    return Point(
        microbatch_size=batch.microbatch_size,
        sequence_length=None if length is None else at_class(length, number),
        tensor_parallel=plan.degrees.tensor,
    )


def _at_points(
    plan: Plan, model: Model, lookup: LayerLookup, points: Sequence[Point], faults: list[Fault]
) -> list[LayerCost]:
    """The cost of each layer at its point; as many as there are layers where none is at fault."""
    costs: list[LayerCost] = []
    missing: dict[tuple[Point, tuple[Point, ...]], list[str]] = {}
    without: dict[Point, list[str]] = {}
    split = splits_backward(plan)
    backward = has_backward(plan)
    for layer, point in zip(model.layers, points, strict=True):
        if layer.is_input:
            costs.append(FREE)
            continue
        cost = lookup.find(layer.name, point)
        if cost is None:
            missing.setdefault((point, lookup.profile.points(layer.name)), []).append(layer.name)
        elif isinstance(cost, Fault):
            faults.append(cost)
        else:
            costs.append(_with_recomputed(cost, layer.name, lookup, point))
            needed = cost.backward_input_picoseconds if split else cost.backward_picoseconds
            if needed is None and backward:
                without.setdefault(point, []).append(layer.name)
    faults += [
        lookup.profile.missing(layers, point, lookup.why_missing)
        for (point, _), layers in missing.items()
    ]
    for point, layers in without.items():
        what, why = ("split of the backward", "splits it") if split else ("backward", "has one")
        detail = f"no {what} was measured for {some_of(layers)} at {point}; the schedule {why}"
        faults.append(Fault(FaultCode.MISSING_PROFILE_POINT, (), detail))
    return costs


def _with_recomputed(cost: LayerCost, layer: str, lookup: LayerLookup, point: Point) -> LayerCost:
    """And what its recomputation makes: what the layer saves without one, less what it has kept.

    Unknown where either is.
    """
    if not cost.recompute_picoseconds:
        return cost
    whole = lookup.find(layer, replace(point, recompute=Recompute.NONE))
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
    ranks = stage_ranks(plan) or ()
    return tuple(
        _stage(
            plan,
            stage,
            tuple(way[stage] for way in ranks),
            tuple(model.layers[position].name for position in held),
            [[of_class[position] for position in held] for of_class in costs],
        )
        for stage, held in enumerate(layers_by_stage(stage_of_layer))
    )


def _stage(
    plan: Plan,
    stage: int,
    ranks: tuple[int, ...],
    layers: tuple[str, ...],
    parts: Sequence[Sequence[LayerCost]],
) -> ResolvedStage:
    backward = has_backward(plan)

    def known(field: str) -> Amount | None:
        return _sum_if_known(parts, field)

    sources = _sources(parts)
    return ResolvedStage(
        stage=stage,
        ranks=ranks,
        layers=layers,
        forward_picoseconds=known("forward_picoseconds") or 0,
        backward_picoseconds=(known("backward_picoseconds") or 0) if backward else 0,
        backward_input_picoseconds=known("backward_input_picoseconds"),
        backward_weight_picoseconds=known("backward_weight_picoseconds"),
        recompute_picoseconds=(known("recompute_picoseconds") or 0) if backward else 0,
        pair_picoseconds=None,
        activation_bytes=known("saved_activation_bytes"),
        activation_deltas=None,
        recomputed_bytes=known("recomputed_activation_bytes") if backward else 0,
        provenance=weakest(provenance for provenance, _ in sources.layers),
        sources=sources,
        layer_gradient_picoseconds=_by_layer(parts, split=splits_backward(plan))
        if backward
        else None,
    )


def _by_layer(parts: Sequence[Sequence[LayerCost]], *, split: bool) -> tuple[Amount, ...] | None:
    """Of the whole backward, or of its half that gives the gradients of weights."""
    field = "backward_weight_picoseconds" if split else "backward_picoseconds"
    of_layers = [
        _sum_if_known([[cost] for cost in of_layer], field) for of_layer in zip(*parts, strict=True)
    ]
    known = tuple(amount for amount in of_layers if amount is not None)
    return known if len(known) == len(of_layers) else None


def _sources(parts: Sequence[Sequence[LayerCost]]) -> CostSources:
    """`parts` has the costs of a stage's layers for each size class."""
    # By layer: its origin in any class. Layers that only hand out inputs are given as free.
    origins = [
        weakest(cost.provenance for cost in of_layer) for of_layer in zip(*parts, strict=True)
    ]
    costs = [cost for of_class in parts for cost in of_class if cost.work_picoseconds]
    samples = [cost.samples for cost in costs]
    together, apart = _deviations(parts)
    return CostSources(
        layers=tuple(
            (origin, count)
            for origin in Provenance
            if origin is not Provenance.GIVEN and (count := origins.count(origin))
        ),
        communication=Communication(
            **{
                field.name: _sum_if_known(parts, f"communication.{field.name}")
                for field in fields(Communication)
            }
        ),
        relative_deviation_at_most=together,
        relative_deviation_if_independent=apart,
        relative_error=_relative_error(parts),
        samples=None if None in samples else min(filter(None, samples), default=None),
        workspace_bytes=_largest_workspace(parts),
    )


def _largest_workspace(parts: Sequence[Sequence[LayerCost]]) -> Amount | None:
    """What the layer with the most needs while it runs; None where a layer's is unknown."""
    largest = []
    for of_class in parts:
        found = [cost.workspace_bytes for cost in of_class]
        if None in found:
            return None
        largest.append(max((bytes_ for bytes_ in found if bytes_ is not None), default=0))
    return total(tuple(largest))


def _deviations(parts: Sequence[Sequence[LayerCost]]) -> tuple[float | None, float | None]:
    """Of the stage's work over its mean: if all layers deviate together, and if each by itself.

    The standard deviation of a sum is at most the sum of the standard deviations, whatever the
    correlation, and the root of the sum of their squares without any.
    """
    together, apart = [], []
    for of_class in parts:
        costs = [cost for cost in of_class if cost.work_picoseconds]
        known = [
            cost.relative_deviation * cost.work_picoseconds
            for cost in costs
            if cost.relative_deviation is not None
        ]
        if len(known) < len(costs) or not costs:
            return None, None
        work = sum(cost.work_picoseconds for cost in costs)
        together.append(fsum(known) / work)
        apart.append(sqrt(fsum(deviation**2 for deviation in known)) / work)
    return max(together), max(apart)


def _relative_error(parts: Sequence[Sequence[LayerCost]]) -> float | None:
    """Of the stage's work, if the errors of all its layers point the same way."""
    found = []
    for of_class in parts:
        work = sum(cost.work_picoseconds for cost in of_class)
        errors = [cost.relative_error for cost in of_class if cost.work_picoseconds]
        if None in errors:
            return None
        if work:
            off = fsum(c.work_picoseconds * (c.relative_error or 0.0) for c in of_class)
            found.append(off / work)
    return max(found, default=0.0)


def _sum_if_known(parts: Sequence[Sequence[LayerCost]], field: str) -> Amount | None:
    """Over the layers of a stage, class by class; None where it is not known of every layer."""
    read = attrgetter(field)
    sums = []
    for of_class in parts:
        found = [read(part) for part in of_class]
        if None in found:
            return None
        sums.append(sum(found))
    return total(tuple(sums))
