"""What layers with experts keep for their backward, by the rows that the busiest rank receives."""

from collections.abc import Sequence
from dataclasses import replace

from service.core.amounts import SizeClasses
from service.core.models.activations import ReceivedRows
from service.core.models.graph import Model
from service.core.plans.assumed_activations import (
    AssumedActivations,
    assume_activations,
    element_bytes,
    with_activations,
)
from service.core.plans.measured import PricedLayers, measured_stages
from service.core.plans.moe.received import busiest_ranks
from service.core.plans.moe.results import PlanMoe
from service.core.plans.plan import Plan, ResolvedStage
from service.core.plans.workload import Batch

__all__ = ["with_received_rows"]


def with_received_rows(
    plan: Plan,
    model: Model,
    priced: PricedLayers,
    batch: Batch,
    stage_of_layer: Sequence[int],
    stages: Sequence[ResolvedStage],
    moe: PlanMoe,
    sizes: SizeClasses,
) -> tuple[tuple[ResolvedStage, ...], AssumedActivations]:
    """The stages with the activation bytes of their experts, and what these rest on.

    Times stay as they are. Bytes that are measured do too.
    """
    assumed = assume_activations(plan, model, priced, batch, _received(plan, model, moe, sizes))
    kept = measured_stages(plan, model, stage_of_layer, assumed.costs)
    kept = with_activations(plan, kept, stage_of_layer, assumed)
    return tuple(
        replace(
            stage,
            activation_bytes=of.activation_bytes,
            activation_deltas=of.activation_deltas,
            recomputed_bytes=of.recomputed_bytes,
            logits=of.logits,
            activations_assumed=of.activations_assumed,
        )
        for stage, of in zip(stages, kept, strict=True)
    ), assumed


def _received(
    plan: Plan, model: Model, moe: PlanMoe, sizes: SizeClasses
) -> dict[int, tuple[ReceivedRows, ...]]:
    """By the position of each layer with experts, for each size class."""
    settings, found = moe.inputs.settings, {}
    dispatched = settings.payloads.forward_dispatch
    for busiest in busiest_ranks(moe, sizes).values():
        for number, rows in busiest.rows.items():
            layer = moe.inputs.layers[number]
            if layer.name is None:
                continue
            position = model.positions[layer.name]
            wide = element_bytes(plan, model.layers[position])
            row_bytes = layer.hidden_size * wide
            if dispatched.dtype.bytes_per_element < wide:
                row_bytes = replace(dispatched, metadata_bytes=0).bytes_of(layer.hidden_size)
            found[position] = tuple(
                ReceivedRows(each, row_bytes, settings.weights_after_experts) for each in rows
            )
    return found
