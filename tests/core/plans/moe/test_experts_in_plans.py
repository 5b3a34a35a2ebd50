"""Stage times with experts in them, worked out by hand to the picosecond.

Two hosts with a GPU for each stage; between them 8 GB/s and 12 us (six links of 2 us), see
`cluster`. A copy of a token is 64 elements of bf16, 128 bytes. A row of an expert has
2 x 3 x 64 x 32 = 12,288 FLOPs.
"""

import dataclasses
from typing import Any

import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.plans.moe.results import Pass
from service.core.plans.plan import ResolvedPlan
from tests.core.plans.moe.expert_worlds import RATES, STAGE, document, hot, resolved, seen
from tests.core.plans.worlds import cluster

FORWARD, BACKWARD = 10_000_000_000, 20_000_000_000
# Half of the 512 assignments of a rank go to the other host: 256 x 128 B / 8 GB/s + 12 us.
EXCHANGE = 4_096_000 + 12_000_000
# 256 tokens and 512 copies of 128 B at 1 TB/s x 790 / 900.
PACK = 111_992
# 512 rows at 50 TFLOP/s.
PRODUCTS = 125_829
EVEN = 2 * EXCHANGE + 2 * PACK + PRODUCTS
EVEN_BACKWARD = 2 * EXCHANGE + 2 * PACK + 2 * PRODUCTS


def forwards(plan: ResolvedPlan) -> list[Any]:
    """Of each stage, beyond what it takes without experts."""
    return [
        stage.forward_picoseconds - FORWARD
        if isinstance(stage.forward_picoseconds, int)
        else tuple(each - FORWARD for each in stage.forward_picoseconds)
        for stage in plan.stages
    ]


def backwards(plan: ResolvedPlan) -> list[Any]:
    return [
        stage.backward_picoseconds - BACKWARD
        for stage in plan.stages
        if isinstance(stage.backward_picoseconds, int)
    ]


def first_rows(plan: ResolvedPlan) -> list[int]:
    """Those of each rank in the first layer of the first microbatch."""
    assert plan.moe is not None
    rows: list[int] = plan.moe.layers[0].runs[0].groups[0].rank_rows.tolist()
    return rows


def codes(plan: ResolvedPlan) -> set[str]:
    return {one.code for one in (*plan.assumptions, *plan.not_represented)}


def test_layers_of_a_stage_add_up() -> None:
    plan = resolved(document([1, 2]))
    assert forwards(plan) == [EVEN, 2 * EVEN]
    assert backwards(plan) == [EVEN_BACKWARD, 2 * EVEN_BACKWARD]


def test_a_hot_rank_takes_longer_over_all_three_parts() -> None:
    """All tokens of both hosts go to rank 0: 512 copies come over its NIC, and it has 1,024 rows.

    The other way none goes, and the combine is as long. Both ranks pack as many copies as before.
    """
    plan = resolved(document([1]), seen([hot(0)], top_k=2))
    exchange = 2 * 4_096_000 + 12_000_000
    assert forwards(plan) == [2 * exchange + 2 * PACK + 2 * PRODUCTS]
    moe = plan.moe
    assert moe is not None
    load = moe.layers[0].runs[0].groups[0]
    assert load.rank_rows.tolist() == [1024, 0]
    assert load.received.tolist() == [512, 0]
    assert load.sent.tolist() == [0, 512]


def test_each_layer_waits_for_its_own_slowest_rank() -> None:
    """Rank 0 is hot in one layer and rank 1 in the next: no rank has more than the mean in all."""
    one = resolved(document([1]), seen([hot(0)], top_k=2))
    both = resolved(document([2]), seen([hot(0), hot(1)], top_k=2))
    (alone,), (together,) = forwards(one), forwards(both)
    assert together == 2 * alone
    moe = both.moe
    assert moe is not None
    first, second = (layer.runs[0].groups[0].rank_rows for layer in moe.layers)
    assert (first + second).tolist() == [1024, 1024]
    assert together > 2 * EVEN


def test_microbatches_read_the_steps_in_turn() -> None:
    even = [[64] * 8] * 2
    plan = resolved(document([1, 0]), seen([even], [hot(1)], [even], top_k=2))
    assert plan.sizes.of_microbatch == (0, 1, 2, 0)
    straggler = 2 * (EXCHANGE + 4_096_000) + 2 * PACK + 2 * PRODUCTS
    assert forwards(plan) == [(EVEN, straggler, EVEN), 0]
    assert {"routing_steps", "microbatches_differ"} <= codes(plan)


def test_without_a_topology_exchanges_take_no_time_and_that_is_said() -> None:
    asked = document([1])
    del asked["topology"]
    plan = resolved(asked)
    assert forwards(plan) == [2 * PACK + PRODUCTS]
    assert "expert_exchange" in codes(plan)
    moe = plan.moe
    assert moe is not None
    run = moe.layers[0].runs[0]
    assert run.forward.dispatch is None
    assert run.groups[0].sent.tolist() == [256, 256]
    assert moe.loads(0, 0, Pass.FORWARD) is None


@pytest.mark.parametrize(
    ("includes", "contained"),
    [("nothing", 0), ("experts", PRODUCTS), ("experts_and_exchange", EVEN)],
)
def test_what_layer_costs_contain_is_taken_off_as_of_even_tokens(
    includes: str, contained: int
) -> None:
    routing = seen([hot(0)], top_k=2)
    plan = resolved(document([1], layer_costs_include=includes), routing)
    takes = 2 * (EXCHANGE + 4_096_000) + 2 * PACK + 2 * PRODUCTS
    assert forwards(plan) == [takes - contained]


def test_even_tokens_change_nothing_where_costs_contain_all() -> None:
    plan = resolved(document([1, 2], layer_costs_include="experts_and_exchange"))
    assert forwards(plan) == [0, 0]
    assert backwards(plan) == [0, 0]
    skewed = {"kind": "uniform"}
    named = resolved(document([1, 2], layer_costs_include="experts_and_exchange", skew=skewed))
    assert forwards(named) == [0, 0]


def test_no_stage_falls_below_its_experts() -> None:
    asked = document([1], layer_costs_include="experts_and_exchange")
    asked["costs"] = {"stages": [{"forward_seconds": 1e-6, "backward_seconds": 1e-6}]}
    plan = resolved(asked, seen([hot(0)], top_k=2))
    takes = 2 * (EXCHANGE + 4_096_000) + 2 * PACK + 2 * PRODUCTS
    assert plan.stages[0].forward_picoseconds == takes
    assert "layer_costs_below_experts" in codes(plan)


def test_exchanges_belong_to_the_half_of_the_inputs() -> None:
    halves = {"backward_input_seconds": 0.01, "backward_weight_seconds": 0.01}
    asked = document([1, 1])
    asked["costs"] = {"stages": [{"forward_seconds": 0.01} | halves] * 2}
    asked["schedule"] = {"kind": "zb_h1"}
    stage = resolved(asked).stages[0]
    assert stage.backward_input_picoseconds == FORWARD + EVEN_BACKWARD - PRODUCTS
    assert stage.backward_weight_picoseconds == FORWARD + PRODUCTS
    assert stage.backward_picoseconds == BACKWARD + EVEN_BACKWARD


@pytest.mark.parametrize(("policy", "again"), [("full", EVEN), ("selective", 0)])
def test_a_full_recomputation_repeats_the_forward(policy: str, again: int) -> None:
    asked = document([1])
    asked["costs"] = {"stages": [STAGE | {"recompute_seconds": 0.01}]}
    asked["recompute"] = {"default": policy}
    plan = resolved(asked)
    assert plan.stages[0].recompute_picoseconds == FORWARD + again
    moe = plan.moe
    assert moe is not None
    forward = moe.loads(0, 0, Pass.FORWARD)
    repeated = moe.loads(0, 0, Pass.RECOMPUTE)
    assert forward is not None
    assert (repeated is None) == (again == 0)
    if repeated is not None:
        assert repeated.bytes.tolist() == forward.bytes.tolist()


def test_the_group_that_takes_longest_stands_for_all() -> None:
    """Two groups of two ranks, each in a host: the second one's first rank has all of its rows."""
    asked = document([1])
    asked["parallelism"] = {"pipeline": 1, "data": 4, "expert": 2}
    asked["placement"] = {"order": ["data", "pipeline"]}
    rows = [[64] * 8] * 2 + hot(0)
    plan = resolved(asked, seen([rows], top_k=2), cluster())
    moe = plan.moe
    assert moe is not None
    assert moe.group == 1
    steps = moe.layers[0].runs[0].forward.step.tolist()
    assert steps[1] == steps[0] + PRODUCTS
    assert forwards(plan) == [steps[1]]
    assert "slowest_expert_group" in codes(plan)


def test_loads_are_those_of_all_layers_and_both_ways() -> None:
    moe = resolved(document([2])).moe
    assert moe is not None
    loads = moe.loads(0, 0, Pass.BACKWARD)
    assert loads is not None
    # Two layers, each 256 copies of 128 bytes there and as many back, over every link between.
    assert set(loads.bytes.tolist()) == {4 * 256 * 128}
    assert moe.loads(0, 0, Pass.BACKWARD_WEIGHT) is None


def test_a_backward_of_other_payloads_has_its_own_time() -> None:
    fp32 = {"dtype": "fp32"}
    plan = resolved(document([1], payloads={"backward_dispatch": fp32}))
    assert forwards(plan) == [EVEN]
    # 256 B copies of gradients: twice the time on the link, and more to pack.
    (backward,) = backwards(plan)
    moved = 256 * 256 + 512 * 256
    packed = round(moved * 900 / 790)
    assert backward == EVEN_BACKWARD + 4_096_000 + packed - PACK


def test_a_fallback_takes_what_the_plan_says_of_its_rows() -> None:
    asked = document(
        [1],
        overflow="fallback",
        capacity_factor=1.0,
        capacity_scope="source",
        fallback_seconds_per_row=1e-9,
    )
    plan = resolved(asked, seen([hot(0)], top_k=2))
    moe = plan.moe
    assert moe is not None
    run = moe.layers[0].runs[0]
    # Of 256 assignments of each hot expert 64 are served: 2 x 192 fall back on each rank.
    assert run.groups[0].fallback.tolist() == [384, 384]
    assert run.forward.fallback.tolist() == [384_000]
    backward = run.backward
    assert backward is not None
    assert backward.fallback.tolist() == [768_000]


def test_a_stage_without_experts_is_as_it_was() -> None:
    plan = resolved(document([1, 0]))
    asked = document([1, 0])
    del asked["moe"]
    before = resolved(asked)
    assert dataclasses.replace(plan.stages[1]) == before.stages[1]


def test_experts_that_do_not_divide_the_ranks_of_a_stage_are_a_fault_of_degrees() -> None:
    asked = document([1, 2])
    asked["parallelism"] = asked["parallelism"] | {"expert": 3}
    with pytest.raises(InvalidInput) as caught:
        resolved(asked)
    told = [(fault.code, fault.path) for fault in caught.value.faults]
    assert told == [(FaultCode.INDIVISIBLE, ("parallelism", "expert"))]


def test_answers_say_that_a_recomputation_repeats_exchanges() -> None:
    asked = document([1, 2])
    assert "expert_recompute" not in codes(resolved(asked))
    stages = [stage | {"recompute_seconds": 0.001} for stage in asked["costs"]["stages"]]
    assert "expert_recompute" in codes(resolved(asked | {"costs": {"stages": stages}}))


def test_a_hot_rank_has_the_experts_that_would_stand_there_in_order() -> None:
    """Whatever the placement, which is said."""
    skew = {"kind": "hot_rank", "fraction": 0.9}
    in_order = resolved(document([1, 2], skew=skew))
    placed = resolved(document([1, 2], skew=skew, placement=[[4, 5, 6, 7], [0, 1, 2, 3]]))
    said = {one.code: one.detail for one in placed.assumptions}
    assert said["routing"].endswith("those that would stand on the rank in order")
    assert "in order" not in {one.code: one.detail for one in in_order.assumptions}["routing"]
    # Its experts are asked for 230.4 times each, the others 25.6 times.
    assert first_rows(in_order) == [920, 104]
    assert first_rows(placed) == [104, 920]


def test_the_slower_of_two_pipeline_ranks_stands_for_both_and_is_told() -> None:
    """One rank of each stage of dualpipe has both its devices in one host, the other in two."""
    asked = document([1, 1])
    halves = {"backward_input_seconds": 0.01, "backward_weight_seconds": 0.01}
    asked["costs"] = {"stages": [{"forward_seconds": 0.01} | halves] * 2}
    asked["schedule"] = {"kind": "dualpipe"}
    told = []
    for last in ("host2/gpu0", "host1/gpu1"):
        devices = ["host0/gpu0", "host0/gpu1", "host1/gpu0", last]
        plan = resolved(asked | {"placement": {"devices": devices}}, on=cluster(hosts=3))
        told.append("slowest_pipeline_rank" in codes(plan))
        assert plan.moe is not None
        if last == "host2/gpu0":
            assert [stage.home for stage in plan.moe.stages] == [1, 1]
            assert forwards(plan) == [EVEN, EVEN]
    assert told == [True, False]


@pytest.mark.parametrize(
    ("tokens", "moe"),
    [
        (2**44, {}),
        (2**36, {"overflow": "pad", "capacity_factor": 1e6, "capacity_scope": "global"}),
        (2**43, {"overflow": "drop", "capacity_factor": 1e6, "capacity_scope": "global"}),
        (2**43, {"overflow": "dropless_padded"}),
        (
            256,
            {
                "overflow": "pad",
                "capacity_factor": 1.0,
                "capacity_scope": "source",
                "capacity_minimum": 2**50,
            },
        ),
    ],
)
def test_more_bytes_than_can_be_counted_are_refused(tokens: int, moe: dict[str, Any]) -> None:
    asked = document([1], **moe)
    asked["workload"] = asked["workload"] | {"sequence_length": tokens}
    with pytest.raises(InvalidInput, match="an exchange of an expert group may have") as caught:
        resolved(asked)
    assert [(one.code, one.path) for one in caught.value.faults] == [
        (FaultCode.OUT_OF_RANGE, ("moe",))
    ]


def test_many_tokens_are_counted_exactly() -> None:
    """Half of 2**41 assignments of a rank cross, 128 bytes each."""
    asked = document([1], compute=RATES | {"peak_flops": 1e24, "memory_bytes_per_second": 1e24})
    asked["workload"] = asked["workload"] | {"sequence_length": 2**40}
    plan = resolved(asked)
    assert plan.moe is not None
    dispatch = plan.moe.layers[0].runs[0].forward.dispatch
    assert dispatch is not None
    assert int(dispatch.loads.bytes.max()) == 2**40 * 128
