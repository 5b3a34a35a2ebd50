"""From the `moe` of a plan to stages with experts in them, and the faults that documents show."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.core.amounts import SizeClasses, at_class, largest
from service.core.errors import Fault, FaultCode, InvalidInput, Statement
from service.core.models.graph import Model
from service.core.moe.routing import Routing
from service.core.moe.settings import LayerCostsInclude, MoeSettings
from service.core.moe.skews import check_skew
from service.core.plans.moe.groups import expert_groups
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs, uniform_inputs
from service.core.plans.moe.layers import layers_of_model, layers_of_shape, with_routing
from service.core.plans.moe.pricing import Pricing
from service.core.plans.moe.results import PlanMoe
from service.core.plans.moe.sizes import size_faults
from service.core.plans.moe.stages import overdrawn_stages, with_experts
from service.core.plans.moe.statements import experts_assumed, experts_left_out
from service.core.plans.moe.sums import priced_experts
from service.core.plans.moe.work import check_expert_work
from service.core.plans.placement import Layout
from service.core.plans.plan import Placed, Plan, ResolvedStage
from service.core.plans.schedule import splits_backward
from service.core.plans.workload import Batch
from service.core.profiles.measurement import Recompute
from service.core.topology.cluster import Cluster
from service.core.units import MAX_SECONDS, to_seconds

__all__ = ["ResolvedExperts", "expert_inputs", "resolve_experts", "routing_steps"]


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedExperts:
    """The experts of a plan, its stages with them, and what is said of both."""

    moe: PlanMoe
    stages: tuple[ResolvedStage, ...]
    assumptions: tuple[Statement, ...]
    left_out: tuple[Statement, ...]


def routing_steps(plan: Plan, routing: Routing | None) -> int:
    """After how many microbatches tokens are routed as in the first again."""
    if routing is not None:
        return routing.steps
    return 1 if plan.moe is None or plan.moe.skew is None else plan.moe.skew.steps


def expert_inputs(
    plan: Plan,
    model: Model | None,
    stage_of_layer: Sequence[int] | None,
    routing: Routing | None,
    batch: Batch,
    sizes: SizeClasses,
    ranks: Layout,
    placement: Sequence[Placed],
    homes: Sequence[Sequence[int]],
    cluster: Cluster | None,
) -> MoeInputs:
    """What the experts of a plan with `moe` are asked, and where they stand.

    `homes` has the pipeline rank of each stage in each direction; model and `stage_of_layer` are
    None where the plan states its stages. Raises `InvalidInput` with every fault: no layer with
    experts, another number of them or of choices than the routing has, layers that it does not
    have, a skew or a placement that does not fit them.
    """
    settings = _settings(plan)
    if model is not None and stage_of_layer is not None:
        layers = layers_of_model(model, stage_of_layer)
    else:
        layers = layers_of_shape(settings)
    read, faults = with_routing(layers, settings, routing)
    for experts, top_k in sorted({(layer.experts, layer.top_k) for layer in layers}):
        if settings.skew is not None:
            faults += check_skew(
                settings.skew,
                experts=experts,
                top_k=top_k,
                ranks=plan.degrees.expert,
                path=("moe", "skew"),
            )
    inputs = MoeInputs(
        settings=settings,
        routing=routing,
        layers=layers,
        tokens=_tokens(plan, batch, sizes),
        steps=tuple(first % routing_steps(plan, routing) for first in sizes.first),
        expert=plan.degrees.expert,
        expert_tensor=plan.degrees.expert_tensor,
        groups=expert_groups(plan.degrees, ranks, placement, cluster),
        homes=tuple(tuple(dict.fromkeys(stage)) for stage in zip(*homes, strict=True)),
    )
    faults += [*_placement_faults(inputs), *size_faults(inputs)]
    if faults:
        raise InvalidInput(dict.fromkeys(faults))
    if read is None:
        return inputs
    reading = zip(layers, read, strict=True)
    return replace(
        inputs, layers=tuple(replace(layer, routing_layer=number) for layer, number in reading)
    )


def resolve_experts(
    plan: Plan,
    model: Model | None,
    inputs: MoeInputs,
    stages: Sequence[ResolvedStage],
    policies: Sequence[Recompute] | None,
    sizes: SizeClasses,
    devices: Sequence[Sequence[str]] | None,
    cluster: Cluster | None,
) -> ResolvedExperts:
    """The stages of a plan with what their experts take.

    `policies` say which layers of a model are computed again, `devices` has those of each stage.

    Raises `InvalidInput` for rates that nobody gives and devices that no path joins, and
    `WorkBudgetExceeded` where it is too much work.
    """
    settings = _settings(plan)
    stated = settings.layer_costs_include is not None
    includes = settings.layer_costs_include or LayerCostsInclude.EXPERTS
    even = uniform_inputs(inputs)
    takes_off = includes is not LayerCostsInclude.NOTHING and not inputs.is_uniform
    check_expert_work((inputs, even) if takes_off else (inputs,))
    pricing = Pricing(plan, model, inputs, devices, cluster)
    evenly = pricing if inputs.is_uniform else Pricing(plan, model, even, devices, cluster)
    moe = priced_experts(
        inputs,
        pricing.run,
        evenly.run,
        sizes=sizes,
        repeats=_repeats(plan, model, inputs.layers, stages, policies),
        includes=includes,
    )
    _check_times(moe)
    return ResolvedExperts(
        moe,
        with_experts(stages, moe, splits=splits_backward(plan)),
        (
            *experts_assumed(
                inputs,
                moe,
                includes=includes,
                stated=stated,
                overdrawn=overdrawn_stages(stages, moe),
                notes=pricing.notes,
            ),
            *pricing.assumptions,
        ),
        experts_left_out(inputs),
    )


def _check_times(moe: PlanMoe) -> None:
    """Refuse stages whose layers, each short enough, come to more than a time may be."""
    faults = []
    for stage in moe.stages:
        longest = max(to_seconds(largest(taken)) for taken in stage.takes.values())
        if longest > MAX_SECONDS:
            detail = (
                f"the {len(stage.layers)} layers with experts of stage {stage.stage} take "
                f"{longest:.6g} s in one operation; a time lies between 0 and {MAX_SECONDS:g} s"
            )
            faults.append(Fault(FaultCode.OUT_OF_RANGE, ("moe",), detail))
    if faults:
        raise InvalidInput(faults)


def _settings(plan: Plan) -> MoeSettings:
    if plan.moe is None:
        raise ValueError("the plan says nothing of experts")
    return plan.moe


def _tokens(plan: Plan, batch: Batch, sizes: SizeClasses) -> tuple[int, ...]:
    """Of a rank in a microbatch of each size class."""
    shape = _settings(plan).shape
    if shape is not None and shape.tokens_per_rank is not None:
        return (shape.tokens_per_rank,) * sizes.count
    length = batch.rank_sequence_length
    if batch.microbatch_size is None or length is None:
        raise ValueError("a plan with experts says how many tokens a rank has")
    shared = plan.degrees.tensor if plan.degrees.sequence_parallel else 1
    return tuple(
        batch.microbatch_size * at_class(length, number) // shared for number in range(sizes.count)
    )


def _placement_faults(inputs: MoeInputs) -> list[Fault]:
    faults: list[Fault] = []
    placed = inputs.settings.experts_by_rank
    if placed is None or len(placed) != inputs.expert:
        return faults  # their number is told without documents
    for experts in sorted({layer.experts for layer in inputs.layers}):
        try:
            inputs.placement(experts)
        except InvalidInput as invalid:
            faults += [fault.under("moe", "placement") for fault in invalid.faults]
    return faults


def _repeats(
    plan: Plan,
    model: Model | None,
    layers: Sequence[ExpertLayer],
    stages: Sequence[ResolvedStage],
    policies: Sequence[Recompute] | None,
) -> list[bool]:
    """Whether each layer's forward is computed again.

    A selective recomputation repeats what attention multiplies, and nothing of experts.
    """
    if model is not None and policies is not None:
        return [
            layer.name is not None and policies[model.positions[layer.name]] is Recompute.FULL
            for layer in layers
        ]
    selective = plan.recompute == Recompute.SELECTIVE.value
    return [bool(stages[layer.stage].recompute_picoseconds) and not selective for layer in layers]
