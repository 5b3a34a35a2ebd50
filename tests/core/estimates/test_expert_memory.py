"""Memory of experts by the rows that come to a rank, the experts it holds, and its exchanges.

Two layers of four experts of width 16, gated, on tokens of 8 elements in bf16. A rank brings 16
tokens and each asks for one expert. Of a layer it keeps, whatever comes to it, the inputs of the
norm and of the router (2 x 16 x 16 bytes) and what the router makes (16 x 4 x 9): 1,088 bytes. Each
row that comes keeps its input (16 bytes) and three times 16 elements inside (96).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.memory_statements import memory_says
from service.core.estimates.simulation import plan_program
from service.core.memory.terms import Term
from service.core.models.dimensions import Dimensions, Experts, Mlp, Split
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, Tensor, build_model
from service.core.moe.routing import Routing
from service.core.moe.settings import Dispatcher, ExpertCompute, MoeSettings, Payload, Payloads
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
from service.core.plans.training import Optimizer, OptimizerSharding, Training
from tests.core.plans.moe.expert_worlds import seen

FIXED, ROW = 1088, 112
COPY = 16  # bytes of a token on its way
EXPERT = 3 * 8 * 16  # elements
EVEN = [[4, 4, 4, 4]] * 2
FP8 = Payload(DType.FP8, scale_block=4)


def model(experts: int = 4, layers: int = 2) -> Model:
    part = Experts(count=experts, active=1, each=Mlp(width=16, gated=True))
    made = [
        Layer(
            f"l{number}",
            "experts",
            (Parameter(f"w{number}", experts * EXPERT, DType.BF16, split=Split.EXPERT),),
            dimensions=Dimensions(hidden=8, feed_forward=part),
        )
        for number in range(layers)
    ]
    tensors = [
        Tensor(f"t{one.name}", one.name, (other.name,), shape=(1,), dtype=DType.BF16)
        for one, other in pairwise(made)
    ]
    return build_model(made, tensors)


def hot(rank: int) -> list[list[int]]:
    """All tokens of both ranks ask for an expert of one."""
    row = [0, 0, 0, 0]
    row[2 * rank] = 16
    return [row, row]


def resolved(
    *steps: Sequence[Sequence[Sequence[int]]],
    degrees: Degrees | None = None,
    microbatches: int = 2,
    experts: int = 4,
    **moe: Any,
) -> ResolvedPlan:
    """Both layers on one stage; each step has a matrix of sources and experts for each layer."""
    routing: Routing | None = seen(*steps) if steps else None
    compute = ExpertCompute(peak_flops=1e12, memory_bytes_per_second=1e12)
    plan = Plan(
        degrees=degrees or Degrees(1, data=2, expert=2),
        workload=Workload(microbatches, microbatch_size=1, sequence_length=16),
        schedule=Schedule("gpipe"),
        model="m@1",
        assumed=AssumedCosts(1.0, 1.0, 1e12, 1e12),
        partition=Partition(layers_per_stage=(2,)),
        training=Training(Optimizer.ADAM, optimizer_sharding=OptimizerSharding.OPTIMIZER),
        moe=MoeSettings(routing="seen@1" if steps else None, compute=compute, **moe),
    )
    return resolve(plan, model=model(experts), routing=routing)


def kept(plan: ResolvedPlan) -> Any:
    """What the stage keeps of a microbatch."""
    (stage,) = plan.stages
    return stage.activation_bytes


def memory(plan: ResolvedPlan) -> PlanMemory:
    return plan_memory(plan, plan_program(plan))


def term(plan: ResolvedPlan, wanted: Term) -> int:
    (rank,) = memory(plan).ranks
    return {one.term: one.maximum for one in rank.terms}.get(wanted, 0)


def test_evenly_choosing_tokens_keep_what_a_plan_without_routing_does() -> None:
    even = resolved()
    without = resolve(replace(even.plan, moe=None), model=model())
    assert kept(even) == kept(without) == 2 * (FIXED + 16 * ROW)
    assert kept(resolved([EVEN, EVEN])) == kept(even)


def test_more_expert_ranks_bring_no_rank_fewer_rows() -> None:
    alone = resolved(degrees=Degrees(1, data=4, expert=1))
    shared = resolved(degrees=Degrees(1, data=4, expert=4))
    assert kept(alone) == kept(shared)


def test_the_rank_that_keeps_most_in_all_layers_counts() -> None:
    """Hot in one layer each, both ranks keep as much; hot in both, rank 1 keeps twice as much."""
    apart = resolved([hot(0), hot(1)])
    assert kept(apart) == 2 * FIXED + 32 * ROW
    both = resolved([hot(1), hot(1)])
    assert kept(both) == 2 * (FIXED + 32 * ROW)
    (rank,) = memory(both).ranks
    assert rank.experts is not None
    assert (rank.experts.rank, rank.experts.group, rank.experts.expert) == (1, 0, 1)
    assert (rank.experts.rows, rank.experts.mean_rows, rank.experts.experts) == (32, 16, 2)
    assert "expert_rows" in {one.code for one in memory_says(both, memory(both)).assumptions}


def test_each_layer_has_memory_for_its_fullest_microbatch() -> None:
    """Microbatches read two steps in turn; which of them finds a layer full is chance."""
    plan = resolved([hot(0), EVEN], [EVEN, EVEN])
    assert plan.sizes.count == 2
    assert kept(plan) == 2 * FIXED + 48 * ROW
    assert term(plan, Term.ACTIVATIONS) == 2 * (2 * FIXED + 48 * ROW)


def test_a_percentile_leaves_out_the_fullest_layers_and_microbatches() -> None:
    """Rank 0 gets 32, 16, 16 and 16 rows: 16 are enough for three of the four."""
    steps = [hot(0), EVEN], [EVEN, EVEN]
    rows = {share: kept(resolved(*steps, rows_percentile=share)) for share in (0.5, 0.75, 0.76)}
    assert rows[0.5] == rows[0.75] == 2 * FIXED + 32 * ROW
    assert rows[0.76] == 2 * FIXED + 48 * ROW


def test_inputs_are_kept_as_they_travel_and_outputs_where_they_are_weighed() -> None:
    """In fp8 with a scale of 4 bytes for each 4 elements a row's input is 16 bytes, with one for 8
    it is 12; a combine's payload changes nothing.
    """
    wide = Payloads(forward_dispatch=FP8)
    narrow = Payloads(forward_dispatch=replace(FP8, scale_block=8, metadata_bytes=9))
    assert kept(resolved(payloads=wide)) == 2 * (FIXED + 16 * ROW)
    assert kept(resolved(payloads=narrow)) == 2 * (FIXED + 16 * (ROW - 4))
    assert kept(resolved(payloads=Payloads(forward_combine=FP8))) == 2 * (FIXED + 16 * ROW)
    assert kept(resolved(weights_after_experts=True)) == 2 * (FIXED + 16 * (ROW + 16))


def test_tensor_parallel_experts_gather_rows_and_share_widths() -> None:
    """Two ranks gather each other's 16 rows, and each has half of the 48 elements inside."""
    plan = resolved(degrees=Degrees(1, data=2, expert_tensor=2))
    assert kept(plan) == 2 * (FIXED + 32 * (16 + 48))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 16), min_size=4, max_size=4))
def test_more_rows_on_the_busiest_rank_take_more_memory(to_first: list[int]) -> None:
    """Sources of both layers ask `to_first` times for rank 0; what counts is the busier rank."""
    layers = [[[n, 0, 16 - n, 0] for n in to_first[2 * at : 2 * at + 2]] for at in range(2)]
    sums = np.array([[sum(to_first[:2]), sum(to_first[2:])]])
    most = int(max(sums.sum(), 64 - sums.sum()))
    assert kept(resolved(layers)) == 2 * FIXED + most * ROW
    assert kept(resolved(layers)) >= kept(resolved())


@pytest.mark.parametrize(
    ("experts", "moe", "most"),
    [
        (4, {}, 2),
        (5, {}, 3),
        (4, {"experts_by_rank": ((0, 1, 2), (3,))}, 3),
        (4, {"experts_by_rank": ((0, 1, 3), (2, 3, 3))}, 3),
    ],
)
def test_a_rank_holds_the_experts_of_the_fullest(
    experts: int, moe: dict[str, Any], most: int
) -> None:
    """Without others that hold the same, 2 bytes of weights, 2 of gradients and 12 of optimizer."""
    plan = resolved(experts=experts, **moe)
    elements = 2 * most * EXPERT
    (held,) = plan.rank_weights
    assert held is not None
    assert held.elements == elements
    assert [one.replicas for one in held.held] == [1]
    sizes = [term(plan, one) for one in (Term.WEIGHTS, Term.GRADIENTS)]
    state = [term(plan, one) for one in (Term.MASTER_WEIGHTS, Term.OPTIMIZER_MOMENTS)]
    assert (sizes, state) == ([2 * elements] * 2, [4 * elements, 8 * elements])
    replicated = sum(map(len, moe.get("experts_by_rank", ()))) > experts
    codes = {one.code for one in plan.not_represented}
    assert ("replica_gradients" in codes) is replicated


def test_buffers_of_an_exchange_hold_what_is_sent_and_received() -> None:
    """Evenly: 8 copies go, 8 come and 8 stay, which lie in both buffers. With all on rank 0, 16
    come to it and 16 of its own stay.
    """
    assert term(resolved([EVEN, EVEN]), Term.DISPATCH_BUFFERS) == (8 + 8 + 2 * 8) * COPY
    assert term(resolved([hot(0), EVEN]), Term.DISPATCH_BUFFERS) == (16 + 2 * 16) * COPY
    narrow = Payload(DType.FP8)
    payloads = Payloads(narrow, narrow, narrow, narrow)
    assert term(resolved([EVEN, EVEN], payloads=payloads), Term.DISPATCH_BUFFERS) == 32 * 8
    alone = resolve(replace(resolved().plan, moe=None), model=model())
    assert term(alone, Term.DISPATCH_BUFFERS) == 0


def test_gathered_tokens_are_sent_from_one_buffer() -> None:
    """Each of four ranks has its own 16 tokens and makes room for those of all."""
    plan = resolved(degrees=Degrees(1, data=4, expert=4), dispatcher=Dispatcher.ALL_GATHER)
    assert term(plan, Term.DISPATCH_BUFFERS) == (16 + 4 * 16) * COPY
