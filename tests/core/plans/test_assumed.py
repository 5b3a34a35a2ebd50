"""Costs from FLOPs and bytes: by hand, marked, and refused where a rate is missing."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.models.dimensions import Attention, Dimensions, Experts, Mlp, Split
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, Symbol, Tensor, build_model
from service.core.plans import measured
from service.core.plans.plan import (
    AssumedCosts,
    Degrees,
    Partition,
    Plan,
    ResolvedPlan,
    Schedule,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, Training
from service.core.profiles.provenance import Provenance
from tests.core.plans.worlds import chain_profile, cluster
from tests.core.refusals import refusal_text, refusals

MILLISECOND = 10**9
# 1 TFLOP/s at half its peak and 100 GB/s of a memory that sustains all.
RATES = AssumedCosts(1 / 2, 1.0, 2e12, 1e11)

ATTENTION = Dimensions(hidden=64, attention=Attention(heads=4, key_value_heads=4, head_size=16))
MLP = Dimensions(hidden=64, feed_forward=Mlp(width=256, gated=False))
HIDDEN = (Symbol.MICROBATCH, Symbol.SEQUENCE, 64)


def weight(count: int, split: Split | None = None) -> Parameter:
    return Parameter("w", count, DType.BF16, split=split)


def model() -> Model:
    return build_model(
        [
            Layer("attention", "attention", (weight(4 * 64 * 64),), dimensions=ATTENTION),
            Layer("mlp", "mlp", (replace(weight(2 * 64 * 256), name="v"),), dimensions=MLP),
        ],
        [Tensor("residual", "attention", ("mlp",), shape=HIDDEN, dtype=DType.BF16)],
    )


def plan(**fields: object) -> Plan:
    made = Plan(
        degrees=Degrees(2),
        workload=Workload(4, microbatch_size=2, sequence_length=512),
        schedule=Schedule("1f1b"),
        model="m",
        assumed=RATES,
        partition=Partition(cuts=(1,)),
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def resolved(asked: Plan) -> ResolvedPlan:
    return resolve(asked, model=model())


# Of 2 x 512 tokens: 2 x weights each, and 4 x 64 for each of the 512 that it attends to.
ATTENTION_WEIGHTS, ATTENTION_PAIRS = 2 * 16_384 * 1024, 4 * 64 * 1024 * 512
MLP_WEIGHTS = 2 * 32_768 * 1024


def test_a_pass_takes_its_flops_over_what_the_device_sustains() -> None:
    """A FLOP takes 1 ps. The bytes (32 KiB of weights, 128 KiB of output) take less."""
    attention, mlp = resolved(plan()).stages
    assert attention.forward_picoseconds == ATTENTION_WEIGHTS + ATTENTION_PAIRS
    assert attention.backward_input_picoseconds == ATTENTION_WEIGHTS + 2 * ATTENTION_PAIRS
    assert attention.backward_weight_picoseconds == ATTENTION_WEIGHTS
    assert attention.backward_picoseconds == 2 * attention.forward_picoseconds
    assert mlp.forward_picoseconds == MLP_WEIGHTS
    assert mlp.backward_picoseconds == 2 * MLP_WEIGHTS


def test_where_the_memory_is_slow_bytes_decide() -> None:
    """100 MB/s: the weights' and the one tensor's bytes, 10 ns each."""
    slow = replace(RATES, memory_bytes_per_second=1e8)
    attention, mlp = resolved(plan(assumed=slow)).stages
    tensor = 2 * 512 * 64 * 2
    assert attention.forward_picoseconds == (16_384 * 2 + tensor) * 10_000
    assert mlp.forward_picoseconds == (32_768 * 2 + tensor) * 10_000
    assert mlp.backward_picoseconds == 2 * mlp.forward_picoseconds


def test_tensor_ranks_share_and_what_they_say_to_each_other_is_left_out() -> None:
    found = resolved(plan(degrees=Degrees(2, tensor=4)))
    assert found.stages[1].forward_picoseconds == MLP_WEIGHTS // 4
    assert "tensor_communication" in {said.code for said in found.not_represented}
    alone = resolved(plan())
    assert "tensor_communication" not in {said.code for said in alone.not_represented}


def test_context_ranks_share_the_tokens() -> None:
    attention, _ = resolved(plan(degrees=Degrees(2, context=2))).stages
    assert attention.forward_picoseconds == (ATTENTION_WEIGHTS + ATTENTION_PAIRS) // 2


def test_recomputing_is_a_forward_again_or_its_attention() -> None:
    policies = (("mlp", "full"), ("attention", "selective"))
    attention, mlp = resolved(plan(recompute_layers=policies)).stages
    assert attention.recompute_picoseconds == ATTENTION_PAIRS
    assert mlp.recompute_picoseconds == MLP_WEIGHTS
    # The input of the first product and both sides of the activation function, of two bytes.
    assert mlp.recomputed_bytes == 1024 * 2 * (64 + 2 * 256)


def test_every_number_is_marked_and_every_efficiency_named() -> None:
    found = resolved(plan(assumed=replace(RATES, compute_efficiency=None)))
    assert {stage.provenance for stage in found.stages} == {Provenance.ASSUMED}
    assert [stage.sources.layers for stage in found.stages if stage.sources] == [
        ((Provenance.ASSUMED, 1),)
    ] * 2
    assert {stage.sources.relative_error for stage in found.stages if stage.sources} == {None}
    (said,) = [one for one in found.assumptions if one.code == "assumed_costs"]
    assert "1e+12 FLOP/s (0.5 of the peak for bf16, the default (44 to 52 %" in said.detail
    assert "1e+11 B/s (1 of the memory bandwidth, the plan's own)" in said.detail
    assert "assumed_inside" in {one.code for one in found.not_represented}


def test_layers_without_dimensions_count_their_parameters_and_say_so() -> None:
    plain = build_model([Layer("l", "linear", (weight(1000),))], [])
    asked = plan(partition=Partition(cuts=()), degrees=Degrees(1))
    found = resolve(asked, model=plain)
    assert found.stages[0].forward_picoseconds == 2 * 1000 * 1024
    (said,) = [one for one in found.assumptions if one.code == "assumed_costs"]
    assert "1 layers without dimensions take 2 FLOPs a parameter" in said.detail


def test_a_lookup_moves_the_rows_that_it_takes() -> None:
    """2^20 rows of 64: 1024 tokens take 1024 of them, or all of a smaller table."""
    slow = replace(RATES, memory_bytes_per_second=1e9)
    for rows, moved in ((2**20, 1024), (100, 100)):
        embedding = Dimensions(hidden=64, embedding_vocabulary=rows)
        layer = Layer("e", "embedding", (weight(rows * 64),), dimensions=embedding)
        asked = plan(assumed=slow, partition=Partition(cuts=()), degrees=Degrees(1))
        (stage,) = resolve(asked, model=build_model([layer], [])).stages
        assert stage.forward_picoseconds == moved * 64 * 2 * 1000


def test_each_rank_reads_the_experts_that_it_has() -> None:
    each = Mlp(width=32, gated=False)
    of = Dimensions(hidden=64, feed_forward=Experts(count=8, active=2, each=each))
    weights = (
        Parameter("experts", 8 * 2 * 64 * 32, DType.BF16, split=Split.EXPERT),
        Parameter("router", 64 * 8, DType.BF16, split=Split.NONE),
    )
    mixture = build_model([Layer("moe", "moe", weights, dimensions=of)], [])
    slow = replace(RATES, memory_bytes_per_second=1e6)
    asked = plan(assumed=slow, partition=Partition(cuts=()), degrees=Degrees(1, data=4, expert=4))
    found = resolve(asked, model=mixture)
    assert found.stages[0].forward_picoseconds == (8 * 4096 // 4 + 512) * 2 * 10**6
    (said,) = [one for one in found.assumptions if one.code == "assumed_costs"]
    assert "choose their experts evenly" in said.detail


def test_rates_are_those_of_the_slowest_device_of_a_stage() -> None:
    world = cluster()
    fast, slow = sorted(vertex.name for vertex in world.devices)[:2]
    for name, peak in ((fast, 4e12), (slow, 2e12)):
        world.vertices[name] = replace(  # type: ignore[index]
            world.vertices[name], peak_flops={"bf16": peak}, memory_bytes_per_second=1e12
        )
    told = AssumedCosts(compute_efficiency=0.5, memory_efficiency=1.0)
    asked = plan(assumed=told, topology="two@1")
    found = resolve(asked, model=model(), cluster=world)
    assert found.stages[0].forward_picoseconds == (ATTENTION_WEIGHTS + ATTENTION_PAIRS) // 2
    assert found.stages[1].forward_picoseconds == MLP_WEIGHTS
    (said,) = [one for one in found.assumptions if one.code == "assumed_costs"]
    assert "1e+12 to 2e+12 FLOP/s" in said.detail


def test_a_rate_that_nobody_gives_is_asked_for() -> None:
    call = lambda: resolved(plan(assumed=AssumedCosts()))  # noqa: E731
    assert refusals(call) == [
        (FaultCode.MISSING_FIELD, ("costs", "assumed", "peak_flops")),
        (FaultCode.MISSING_FIELD, ("costs", "assumed", "memory_bytes_per_second")),
    ]
    asked = plan(assumed=AssumedCosts(memory_bytes_per_second=1e11), topology="two@1")
    silent = lambda: resolve(asked, model=model(), cluster=cluster())  # noqa: E731
    assert refusals(silent) == [(FaultCode.MISSING_FIELD, ("costs", "assumed", "peak_flops"))]
    assert "(and 1 more devices) of the topology does not say a peak for bf16" in refusal_text(
        silent
    )


def test_the_type_that_computes_is_that_of_the_training_or_the_plan() -> None:
    trained = plan(training=Training(Optimizer.ADAM, weight_dtype=DType.FP16))
    (said,) = [one for one in resolved(trained).assumptions if one.code == "assumed_costs"]
    assert "peak for fp16" in said.detail
    stated = replace(RATES, compute_dtype=DType.FP8)
    (said,) = [
        one
        for one in resolved(replace(trained, assumed=stated)).assumptions
        if one.code == "assumed_costs"
    ]
    assert "peak for fp8" in said.detail


def test_what_does_not_go_together_is_refused() -> None:
    both = plan(profile="p")
    call = lambda: resolve(both, model=model(), profile=chain_profile(2))  # noqa: E731
    assert (FaultCode.EXCLUSIVE_FIELDS, ("costs", "assumed")) in refusals(call)
    untold = plan(workload=Workload(4))
    assert set(refusals(lambda: resolved(untold))) == {
        (FaultCode.MISSING_FIELD, ("workload", "microbatch_size")),
        (FaultCode.MISSING_FIELD, ("workload", "sequence_length")),
    }


def test_what_would_take_too_long_is_refused() -> None:
    slow = replace(RATES, peak_flops=1.0)
    call = lambda: resolved(plan(assumed=slow))  # noqa: E731
    assert refusals(call) == [(FaultCode.OUT_OF_RANGE, ("costs", "assumed"))]


def test_how_many_tensors_are_looked_at_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers and one tensor, at two lengths."""
    work = Workload(2, microbatch_size=2, microbatch_sequence_lengths=(8, 4))
    monkeypatch.setattr(measured, "MAX_LOOKUPS", 5)
    assert refusals(lambda: resolved(plan(workload=work))) == [
        (FaultCode.WORK_BUDGET, ("workload", "microbatch_sequence_lengths"))
    ]
    monkeypatch.setattr(measured, "MAX_LOOKUPS", 6)
    assert resolved(plan(workload=work)).stages[1].provenance is Provenance.ASSUMED


@pytest.mark.parametrize("kind", ["zb_h1", "gpipe", "forward_only"])
def test_any_schedule_can_be_priced(kind: str) -> None:
    found = resolved(plan(schedule=Schedule(kind)))
    assert found.stages[1].forward_picoseconds == MLP_WEIGHTS


def test_ranks_share_whole_heads() -> None:
    """Layers with four heads go on one, two or four ranks."""
    assert resolved(plan(degrees=Degrees(2, tensor=4)))
    for tensor in (3, 8):
        uneven = plan(degrees=Degrees(2, tensor=tensor))
        assert refusals(lambda asked=uneven: resolved(asked)) == [  # type: ignore[misc]
            (FaultCode.INDIVISIBLE, ("parallelism", "tensor"))
        ]
    assert "the 4 attention heads of layer 'attention'" in refusal_text(lambda: resolved(uneven))
