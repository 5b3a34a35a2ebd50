"""Which weights a rank holds, in all and for each stage, and with how many others it shares a copy.

Stages of one pipeline rank share a weight that is in both; stages on different ones each hold a
copy of it. Where a plan states its costs itself it may say how many parameters a stage has; all of
them are then taken to be spread over the tensor-parallel ranks, or over those that share experts.

Where a plan says how its experts run, a rank holds as many of them as the one that holds most:
experts over ranks rounded up, or by the placement, in which each replica counts.
"""

from collections.abc import Iterable, Sequence

from service.core.models.dimensions import Experts, Split
from service.core.models.dtypes import DType
from service.core.models.graph import Model, ModelWeight
from service.core.moe.settings import MoeSettings
from service.core.plans.partition import layers_by_stage
from service.core.plans.plan import GivenStage, Plan, ResolvedPlan
from service.core.plans.rank_weights import HeldWeights, PlacedWeights, RankWeights
from service.core.schedules.shape import Placement

__all__ = ["given_weights", "model_weights", "most_experts", "weights_of_stages"]


def given_weights(
    plan: Plan, stages: Sequence[GivenStage], homes: Placement
) -> tuple[RankWeights | None, ...]:
    """By pipeline rank, of stages that state their parameters; None where one does not."""
    found: list[RankWeights | None] = []
    for here in _stages_by_rank(homes, plan.degrees.pipeline):
        counts = [stages[number].parameter_count for number in here]
        if None in counts:
            found.append(None)
            continue
        of_experts = sum(stages[number].expert_parameter_count or 0 for number in here)
        count = sum(count for count in counts if count is not None)
        held = tuple(one.held for one in _stated(count, of_experts, plan))
        assumed = count - of_experts if plan.degrees.tensor > 1 else 0
        found.append(RankWeights(held, None, None, assumed))
    return tuple(found)


def model_weights(
    plan: Plan, model: Model, stage_of_layer: Sequence[int], homes: Placement
) -> tuple[RankWeights, ...]:
    """By pipeline rank, of a model that is cut into stages."""
    of_layer, of_stage = _by_layer(model), layers_by_stage(stage_of_layer)

    def all_held(weights: Iterable[ModelWeight]) -> tuple[HeldWeights, ...]:
        return _merged([_of_model(one, model, plan) for one in weights])

    found = []
    for here in _stages_by_rank(homes, plan.degrees.pipeline):
        layers = sorted(layer for stage in here for layer in of_stage[stage])
        once = dict.fromkeys(weight for layer in layers for weight in of_layer[layer])
        by_layer = [all_held(of_layer[layer]) for layer in layers]
        found.append(
            RankWeights(
                held=all_held(once),
                largest_layer=max(
                    by_layer, key=lambda held: sum(one.elements for one in held), default=()
                ),
                buffer_bytes=sum(
                    buffer.count * buffer.dtype.bytes_per_element
                    for layer in layers
                    for buffer in model.layers[layer].buffers
                ),
                assumed_split=sum(weight.count for weight in once if weight.split is None)
                if plan.degrees.tensor > 1
                else 0,
            )
        )
    return tuple(found)


def weights_of_stages(resolved: ResolvedPlan) -> tuple[tuple[PlacedWeights, ...] | None, ...]:
    """By stage, what a rank of it holds; None where a plan does not state its parameters.

    Stages of the same pipeline ranks hold what they have in common once, on the first of them. A
    weight of several layers of a stage is placed in the first of these, whose backward is the last.
    """
    model, plan = resolved.model, resolved.plan
    if model is None:
        return tuple(
            None
            if (count := stage.parameter_count) is None
            else tuple(_stated(count, stage.expert_parameter_count or 0, plan))
            for stage in plan.stages or ()
        )
    of_layer = _by_layer(model)
    seen: set[tuple[frozenset[int], ModelWeight]] = set()
    found = []
    for stage in resolved.stages:
        placed = []
        for place, name in enumerate(stage.layers):
            for one in of_layer[model.positions[name]]:
                key = frozenset(stage.ranks), one
                if key not in seen:
                    seen.add(key)
                    held = _of_model(one, model, plan)
                    placed.append(PlacedWeights(held, one.split is Split.EXPERT, place))
        found.append(tuple(placed))
    return tuple(found)


def _by_layer(model: Model) -> list[list[ModelWeight]]:
    of_layer: list[list[ModelWeight]] = [[] for _ in model.layers]
    for weight in model.weights:
        for layer in weight.layers:
            of_layer[layer].append(weight)
    return of_layer


def _stated(count: int, of_experts: int, plan: Plan) -> list[PlacedWeights]:
    """Dense weights and experts of stages that state how many parameters they have."""
    kinds = (count - of_experts, None), (of_experts, Split.EXPERT)
    shape = None if plan.moe is None else plan.moe.shape
    experts = None if shape is None else shape.experts
    return [
        PlacedWeights(_held(elements, None, split, experts, plan), split is Split.EXPERT, None)
        for elements, split in kinds
        if elements
    ]


def _stages_by_rank(homes: Placement, ranks: int) -> list[list[int]]:
    """The stages that live on each pipeline rank, in either direction, each once."""
    here: list[dict[int, None]] = [{} for _ in range(ranks)]
    for way in homes:
        for stage, rank in enumerate(way):
            here[rank][stage] = None
    return [sorted(stages) for stages in here]


def _of_model(weight: ModelWeight, model: Model, plan: Plan) -> HeldWeights:
    dimensions = model.layers[weight.layers[0]].dimensions
    part = None if dimensions is None else dimensions.feed_forward
    experts = part.count if isinstance(part, Experts) else None
    return _held(weight.count, weight.dtype, weight.split, experts, plan)


def _held(
    count: int, dtype: DType | None, split: Split | None, experts: int | None, plan: Plan
) -> HeldWeights:
    """`experts` are those of the layer of the weight, None where nobody says."""
    degrees = plan.degrees
    elements, replicas = degrees.share(count, split), degrees.weight_replicas
    if split is Split.EXPERT:
        replicas = degrees.expert_replicas
        if plan.moe is not None and experts is not None:
            most = most_experts(plan.moe, experts, degrees.expert)
            elements = -(-count * most // (experts * degrees.expert_tensor))
    return HeldWeights(elements, dtype, degrees.sharing(split), replicas)


def most_experts(settings: MoeSettings, experts: int, ranks: int) -> int:
    """Experts on the rank of an expert group that holds most of them, replicas among them."""
    if settings.experts_by_rank is None:
        return -(-experts // ranks)
    return max(map(len, settings.experts_by_rank), default=0)


def _merged(held: Sequence[HeldWeights]) -> tuple[HeldWeights, ...]:
    """Those alike in all but their number as one, in the order of first appearance."""
    kinds: dict[tuple[DType | None, int, int], int] = {}
    for one in held:
        kind = one.dtype, one.sharing, one.replicas
        kinds[kind] = kinds.get(kind, 0) + one.elements
    return tuple(HeldWeights(elements, *kind) for kind, elements in kinds.items())
