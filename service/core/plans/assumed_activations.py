"""Activations of layers that nobody measured, by their dimensions, and logits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from service.core.amounts import at_class, total
from service.core.models.activations import (
    KeptShape,
    ReceivedRows,
    StageLogits,
    layer_activations,
    logit_bytes,
)
from service.core.models.graph import Layer, Model
from service.core.plans import memory_statements
from service.core.plans.measured import PricedLayers
from service.core.plans.partition import layers_by_stage
from service.core.plans.plan import Plan, ResolvedStage, Statement
from service.core.plans.schedule import has_backward, splits_backward
from service.core.plans.workload import Batch
from service.core.profiles.measurement import LayerCost, Recompute

__all__ = [
    "AssumedActivations",
    "activations_assumed",
    "assume_activations",
    "element_bytes",
    "recomputes_by_layer",
    "with_activations",
]

# Activations of weights in eight bits are in sixteen.
_LEAST_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class AssumedActivations:
    """`costs` of each layer for each size class, with what was not measured filled in.

    `layers` are the positions of those, `logits` what the layers among them that make logits add,
    `experts` says whether any has experts.
    """

    costs: list[list[LayerCost]]
    layers: tuple[int, ...]
    logits: Mapping[int, StageLogits]
    experts: bool = False


def assume_activations(
    plan: Plan,
    model: Model,
    priced: PricedLayers,
    batch: Batch,
    received: Mapping[int, Sequence[ReceivedRows]] | None = None,
) -> AssumedActivations:
    """Bytes saved by layers whose profile has none, where their dimensions and the batch say them.

    `received` has for the position of each layer with experts what comes to a rank of it in a
    microbatch of each size class; where it is None tokens spread evenly. A measurement stands as it
    is. Without a backward nothing is kept for it, so nothing is assumed.
    """
    without = [
        position
        for position, layer in enumerate(model.layers)
        if layer.dimensions is not None
        and any(of_class[position].saved_activation_bytes is None for of_class in priced.costs)
    ]
    length, of_rank = batch.sequence_length, batch.rank_sequence_length
    filled = [list(of_class) for of_class in priced.costs]
    logits: dict[int, StageLogits] = {}
    if not has_backward(plan) or length is None or of_rank is None or batch.microbatch_size is None:
        return AssumedActivations(filled, (), logits)
    for position in without:
        layer = model.layers[position]
        parts = []
        for number, of_class in enumerate(filled):
            shape = KeptShape(
                samples=batch.microbatch_size,
                tokens_per_sample=at_class(of_rank, number),
                sequence_length=at_class(length, number),
                tensor=plan.degrees.tensor,
                sequence_parallel=plan.degrees.sequence_parallel,
                expert_tensor=plan.degrees.expert_tensor,
                element_bytes=element_bytes(plan, layer),
                flash_attention=not plan.memory.writes_scores,
                dropout=plan.memory.dropout or False,
                received=received[position][number] if received and position in received else None,
            )
            of_class[position], found = _filled(
                plan, layer, of_class[position], shape, priced.policies[position]
            )
            parts.append(found)
        if any(part != (0, 0, 0) for part in parts):
            logits[position] = StageLogits(*(total(column) for column in zip(*parts, strict=True)))
    experts = any(model.layers[position].has_experts for position in without)
    return AssumedActivations(filled, tuple(without), logits, experts)


def element_bytes(plan: Plan, layer: Layer) -> int:
    """Of activations: as wide as the weights they are multiplied with."""
    own = layer.parameters[0].dtype if layer.parameters else None
    if plan.training is not None and (plan.training.weight_dtype or own) is not None:
        own = plan.training.weights(own)
    return max(_LEAST_ELEMENT_BYTES, 0 if own is None else own.bytes_per_element)


def _filled(
    plan: Plan, layer: Layer, cost: LayerCost, shape: KeptShape, policy: Recompute
) -> tuple[LayerCost, tuple[int, int, int]]:
    """The cost with what the layer keeps, and its logits: kept, in a forward, in a backward."""
    dimensions = layer.dimensions
    if dimensions is None or cost.saved_activation_bytes is not None:
        return cost, (0, 0, 0)
    found = layer_activations(dimensions, shape)
    kept = {
        Recompute.NONE: found.whole,
        Recompute.SELECTIVE: found.selective,
        Recompute.FULL: found.full,
    }[policy]
    again = found.whole - kept if cost.recompute_picoseconds else 0
    logits = (0, 0, 0)
    if dimensions.head_vocabulary is not None:
        made = logit_bytes(dimensions.head_vocabulary, shape, chunk_tokens=plan.memory.chunk_tokens)
        logits = (made.kept, made.in_forward, made.in_backward)
    kept += logits[0]
    return replace(cost, saved_activation_bytes=kept, recomputed_activation_bytes=again), logits


def recomputes_by_layer(plan: Plan) -> bool:
    """Whether what a recomputation makes is alive for one layer at a time."""
    early = plan.schedule.recompute_before_gradient
    return plan.stages is None and not early and not splits_backward(plan)


def with_activations(
    plan: Plan,
    stages: Sequence[ResolvedStage],
    stage_of_layer: Sequence[int],
    assumed: AssumedActivations,
) -> tuple[ResolvedStage, ...]:
    """The stages with their logits, and with what one recomputation has alive at once.

    Layer by layer is computed again, and freed by its backward before the next: the largest counts.
    Where the backward is split the halves of the weights still need all, and so does a
    recomputation that is done before the gradient comes.
    """
    found = []
    for stage, layers in zip(stages, layers_by_stage(stage_of_layer), strict=True):
        again = stage.recomputed_bytes
        if again and recomputes_by_layer(plan):
            again = total(
                tuple(
                    max(of_class[layer].recomputed_activation_bytes or 0 for layer in layers)
                    for of_class in assumed.costs
                )
            )
        logits = next((assumed.logits[layer] for layer in layers if layer in assumed.logits), None)
        assumed_layers = len(set(layers).intersection(assumed.layers))
        found.append(
            replace(
                stage,
                recomputed_bytes=again,
                logits=logits,
                activations_assumed=assumed_layers,
            )
        )
    return tuple(found)


def activations_assumed(plan: Plan, assumed: AssumedActivations | None) -> list[Statement]:
    """What was taken for granted of activations that nobody measured."""
    if assumed is None or not assumed.layers:
        return []
    settings = plan.memory
    said = [
        memory_statements.assumed_activations(
            len(assumed.layers),
            flash_attention=not settings.writes_scores,
            dropout=settings.dropout or False,
            experts=assumed.experts,
            routed=plan.moe is not None,
        )
    ]
    if assumed.logits:
        said.append(memory_statements.logits(settings.chunk_tokens))
    return said
