"""Activations that nobody measured, in stages of a model."""

from dataclasses import replace
from itertools import pairwise

import pytest

from service.core.models.activations import StageLogits
from service.core.models.dimensions import Attention, Dimensions, Mlp
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, Tensor, build_model
from service.core.plans.memory_settings import CrossEntropy, MemorySettings
from service.core.plans.plan import (
    Degrees,
    Partition,
    Plan,
    ResolvedPlan,
    Schedule,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.profiles.measurement import Measurement, Point, Recompute
from service.core.profiles.profile import build_profile

BLOCK = Dimensions(
    hidden=8,
    attention=Attention(heads=2, key_value_heads=2, head_size=4),
    feed_forward=Mlp(width=16, gated=False),
)
# 16 tokens of 2 x 8 bytes: two norms and the inputs of three products of the width of the model,
# queries, keys and values; two of the MLP's width; statistics of two heads.
WHOLE = 16 * (8 * 16 + 2 * 32 + 2 * 4)
PLAN = Plan(
    degrees=Degrees(2),
    workload=Workload(4, microbatch_size=2, sequence_length=8),
    schedule=Schedule("1f1b"),
    model="m@1",
    profile="p@1",
    partition=Partition(layers_per_stage=(2, 2)),
)


def model() -> Model:
    weight = Parameter("w", 8, DType.BF16)
    layers = [
        Layer("a", "block", (replace(weight, name="a.w"),), dimensions=BLOCK),
        Layer("b", "block", (replace(weight, name="b.w"),), dimensions=BLOCK),
        Layer("c", "block", (replace(weight, name="c.w"),), dimensions=BLOCK),
        Layer("head", "head", dimensions=Dimensions(hidden=8, head_vocabulary=10)),
    ]
    return build_model(
        layers,
        [
            Tensor(f"t.{one.name}", one.name, (other.name,), shape=(1,), dtype=DType.BF16)
            for one, other in pairwise(layers)
        ],
    )


def resolved(
    plan: Plan = PLAN, *, saved: dict[str, int] | None = None, recompute: str = "none"
) -> ResolvedPlan:
    """Priced by a profile that has what the layers of `saved` keep, and of no other."""
    points = [
        Point(2, length, recompute=Recompute(recompute))
        for length in {plan.workload.sequence_length or 8, 8}
    ]
    again = None if recompute == "none" else 0.5
    measured = [
        Measurement(
            layer.name,
            point,
            1.0,
            2.0,
            recompute_seconds=again,
            saved_activation_bytes=(saved or {}).get(layer.name),
        )
        for layer in model().layers
        for point in points
    ]
    plan = replace(plan, recompute=recompute)
    return resolve(plan, model=model(), profile=build_profile(None, None, measured))


def codes(found: ResolvedPlan) -> set[str]:
    return {said.code for said in (*found.assumptions, *found.not_represented)}


def test_layers_keep_what_their_dimensions_say() -> None:
    found = resolved()
    first, last = found.stages
    # Logits of 16 x 10 words of two bytes and in full; a gradient in full.
    assert last.logits == StageLogits(16 * 10 * 6, 0, 16 * 10 * 4)
    assert first.activation_bytes == 2 * WHOLE
    assert last.activation_bytes == WHOLE + 16 * 16 + 16 * 10 * 6
    assert (first.logits, first.activations_assumed, last.activations_assumed) == (None, 2, 2)
    assert {"assumed_activations", "logits"} <= codes(found)
    assert "activation_bytes" not in codes(found)


def test_a_measurement_stands_and_the_rest_is_filled_in() -> None:
    found = resolved(saved={"a": 5, "head": 7})
    first, last = found.stages
    assert (first.activation_bytes, first.activations_assumed) == (5 + WHOLE, 1)
    assert (last.activation_bytes, last.logits) == (WHOLE + 7, None)
    assert "logits" not in codes(found)
    every = resolved(saved=dict.fromkeys(("a", "b", "c", "head"), 3))
    assert [stage.activation_bytes for stage in every.stages] == [6, 6]
    assert "assumed_activations" not in codes(every)


def test_recomputation_keeps_inputs_and_makes_one_layer_at_a_time() -> None:
    found = resolved(recompute="full")
    first, last = found.stages
    assert first.activation_bytes == 2 * 16 * 16
    assert first.recomputed_bytes == WHOLE - 16 * 16
    # The head computes nothing again.
    assert last.activation_bytes == 16 * 16 + 16 * 16 + 16 * 10 * 6
    assert "recomputed_by_layer" in codes(found)
    written = replace(PLAN, memory=MemorySettings(flash_attention=False))
    found = resolved(written, recompute="selective")
    scores = 2 * 16 * 8 * 2
    assert found.stages[0].recomputed_bytes == scores
    assert found.stages[0].activation_bytes == 2 * (WHOLE - 16 * 2 * 4)


def test_a_fused_cross_entropy_has_to_be_claimed() -> None:
    fused = MemorySettings(cross_entropy=CrossEntropy.FUSED, cross_entropy_chunk_tokens=4)
    last = resolved(replace(PLAN, memory=fused)).stages[-1]
    assert last.logits == StageLogits(0, 4 * 10 * 4, 0)
    assert last.activation_bytes == WHOLE + 16 * 16


def test_microbatches_of_different_lengths_keep_different_amounts() -> None:
    lengths = Workload(2, microbatch_size=2, microbatch_sequence_lengths=(8, 4))
    measured = [
        Measurement(layer.name, Point(2, length), 1.0, 2.0)
        for layer in model().layers
        for length in (8, 4)
    ]
    found = resolve(
        replace(PLAN, workload=lengths), model=model(), profile=build_profile(None, None, measured)
    )
    assert found.stages[0].activation_bytes == (2 * WHOLE, WHOLE)
    logits = found.stages[1].logits
    assert logits is not None
    assert logits.in_backward == (16 * 10 * 4, 8 * 10 * 4)


@pytest.mark.parametrize("kind", ["forward_only", "1f1b"])
def test_nothing_is_assumed_without_a_backward_or_a_length(kind: str) -> None:
    schedule = Schedule(kind)
    workload = Workload(4, microbatch_size=2, sequence_length=8 if kind != "1f1b" else None)
    measured = [
        Measurement(layer.name, Point(2, workload.sequence_length), 1.0, 2.0)
        for layer in model().layers
    ]
    found = resolve(
        replace(PLAN, schedule=schedule, workload=workload),
        model=model(),
        profile=build_profile(None, None, measured),
    )
    assert [stage.activation_bytes for stage in found.stages] == [None, None]
    assert "assumed_activations" not in codes(found)
