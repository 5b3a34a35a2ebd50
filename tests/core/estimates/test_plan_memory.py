"""What each rank of a plan holds at its fullest instant."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import FaultCode
from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.memory_statements import memory_says
from service.core.estimates.simulation import plan_program, simulate_plan
from service.core.memory.terms import OPTIMIZER_STEP, Blame, Relief, Term, TermOrigin
from service.core.models.dtypes import DType
from service.core.plans.memory_settings import MemorySettings
from service.core.plans.plan import Degrees, GivenStage, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, OptimizerSharding, Training
from service.core.schedules.program import OpKind
from tests.core.refusals import refusals

MIB = 2**20
# 2 + 2 + 4 + 8 bytes a parameter, and 4 during the step.
ADAM = Training(Optimizer.ADAM, weight_dtype=DType.BF16)
STAGE = GivenStage(1.0, backward_seconds=2.0, activation_bytes=1000, parameter_count=100)
# Nothing beside what a test is about.
BARE = MemorySettings(
    reserve_fraction=0,
    usable_fraction=1,
    context_bytes=0,
    communicators=0,
    workspace_bytes=0,
)


def plan_of(
    *stages: GivenStage,
    kind: str = "1f1b",
    microbatches: int = 8,
    training: Training | None = ADAM,
    memory: MemorySettings = BARE,
    ranks: int | None = None,
    chunks: int = 1,
    data: int = 1,
    expert: int = 1,
) -> Plan:
    boundaries = [replace(stage, boundary_bytes=0) for stage in stages[:-1]]
    return Plan(
        degrees=Degrees(ranks or len(stages), data=data, expert=expert),
        workload=Workload(microbatches),
        schedule=Schedule(kind, chunks_per_rank=chunks),
        stages=(*boundaries, stages[-1]),
        training=training,
        memory=memory,
    )


def of(plan: Plan) -> PlanMemory:
    resolved = resolve(plan)
    return plan_memory(resolved, plan_program(resolved))


def sizes(memory: PlanMemory, rank: int = 0) -> dict[str, tuple[int, int]]:
    """Bytes at the peak and at the most, by term."""
    return {term.term.value: (term.at_peak, term.maximum) for term in memory.ranks[rank].terms}


def unknown(memory: PlanMemory) -> set[str]:
    return {one.term.value for one in memory.unknown}


def test_a_pipeline_by_hand() -> None:
    memory = of(plan_of(*[STAGE] * 4))
    assert sizes(memory) == {
        "weights": (200, 200),
        "gradients": (200, 200),
        "master_weights": (400, 400),
        "optimizer_moments": (800, 800),
        "activations": (4000, 4000),
        "step_gradients": (0, 400),
    }
    # The rank before the last has two microbatches, the last one.
    assert [rank.verdict.total for rank in memory.ranks] == [5600, 4600, 3600, 2600]
    assert [rank.peak.name for rank in memory.ranks] == ["0F3", "1F2", "2F1", "3F0"]
    assert (memory.feasible, memory.least_headroom) == (None, None)


def test_two_orders_of_one_plan_have_different_peaks() -> None:
    totals = {
        kind: [rank.verdict.total for rank in of(plan_of(*[STAGE] * 2, kind=kind)).ranks]
        for kind in ("gpipe", "1f1b")
    }
    assert totals == {"gpipe": [9600, 9600], "1f1b": [3600, 2600]}


def test_a_verdict_against_the_device() -> None:
    half = replace(BARE, device_memory_bytes=10_000, usable_fraction=0.5)
    memory = of(plan_of(*[STAGE] * 4, memory=half))
    assert [rank.verdict.headroom for rank in memory.ranks] == [-600, 400, 1400, 2400]
    assert [rank.verdict.feasible for rank in memory.ranks] == [False, True, True, True]
    assert (memory.feasible, memory.least_headroom) == (False, -600)
    assert memory.ranks[0].verdict.blame == Blame(Term.ACTIVATIONS, Relief.HALVED)
    assert of(plan_of(*[STAGE] * 4, memory=replace(half, usable_fraction=0.56))).feasible is True


def test_the_step_may_be_the_fullest_instant() -> None:
    small = replace(STAGE, activation_bytes=100)
    resolved = resolve(plan_of(small))
    simulated = simulate_plan(resolved)
    (rank,) = plan_memory(resolved, simulated.timeline.program, simulated.timeline).ranks
    assert (rank.peak.name, rank.peak.operation) == (OPTIMIZER_STEP, None)
    assert rank.peak.picoseconds == simulated.timeline.makespan
    assert rank.verdict.total == 16 * 100 + 4 * 100
    # With gradients in full the step needs no copy of them.
    full = replace(ADAM, gradient_dtype=DType.FP32)
    (rank,) = of(plan_of(small, training=full)).ranks
    assert (rank.peak.name, rank.verdict.total) == ("0F0", 18 * 100 + 100)


def test_defaults_are_told_and_can_be_replaced() -> None:
    stages = [STAGE] * 2
    defaulted = of(plan_of(*stages, memory=MemorySettings(), data=2))
    found = sizes(defaulted)
    assert found["context"] == (1024 * MIB,) * 2
    # One group along the pipeline, one of the replicas.
    assert found["communicators"] == (2 * 544 * MIB,) * 2
    assert found["workspace"] == (100 * MIB,) * 2
    allocated = 1600 + 2000 + 100 * MIB
    assert found["reserve"][0] == -(-allocated * 8 // 100)
    origins = {term.term: term.origin for term in defaulted.ranks[0].terms}
    assert origins[Term.CONTEXT] is origins[Term.RESERVE] is TermOrigin.DEFAULT
    given_ones = MemorySettings(
        reserve_fraction=0.5,
        context_bytes=7,
        communicators=3,
        communicator_bytes=5,
        workspace_bytes=11,
        gradient_bucket_bytes=13,
    )
    found = sizes(of(plan_of(*stages, memory=given_ones)))
    assert [found[name][0] for name in ("context", "communicators", "workspace")] == [7, 15, 11]
    # The bucket is there in backwards alone, and the reserve is of what is there at the peak.
    assert found["gradient_buckets"] == (13, 13)
    assert found["reserve"][0] == (1600 + 2000 + 11 + 13 + 1) // 2


def test_sharding_keeps_shares_and_gathers_layers() -> None:
    by_level = {
        level: of(
            plan_of(
                STAGE,
                training=replace(ADAM, optimizer_sharding=level),
                memory=replace(BARE, gradient_bucket_bytes=0),
                data=3,
            )
        )
        for level in OptimizerSharding
    }
    states = {
        level: sum(
            sizes(memory)[name][0]
            for name in ("weights", "gradients", "master_weights", "optimizer_moments")
        )
        for level, memory in by_level.items()
    }
    # Shares of 100 elements on three ranks: 34.
    assert list(states.values()) == [1600, 400 + 12 * 34, 200 + 14 * 34, 16 * 34]
    assert unknown(by_level[OptimizerSharding.GRADIENTS]) == set()
    # Nobody knows the layers of a stage that states its own costs.
    assert unknown(by_level[OptimizerSharding.PARAMETERS]) == {"gathered_weights"}
    assert by_level[OptimizerSharding.PARAMETERS].feasible is None


def test_a_schedule_of_two_directions_holds_two_stages() -> None:
    stages = [replace(STAGE, parameter_count=100 * 10**number) for number in range(4)]
    memory = of(plan_of(*stages, kind="chimera"))
    weights = [sizes(memory, rank)["weights"][0] for rank in range(4)]
    assert weights == [2 * 100_100, 2 * 11_000, 2 * 11_000, 2 * 100_100]


def test_versions_of_weights_of_an_asynchronous_schedule() -> None:
    memory = of(plan_of(*[STAGE] * 4, kind="pipedream"))
    versions = [sizes(memory, rank).get("weight_versions", (0, 0))[0] for rank in range(4)]
    assert versions == [3 * 200, 2 * 200, 200, 0]
    # Its optimizer steps between operations, with activations there.
    assert sizes(memory)["step_gradients"] == (400, 400)
    # As many where an iteration has few microbatches, and no word of what the next one holds.
    few = of(plan_of(*[STAGE] * 4, kind="pipedream", microbatches=2))
    versions = [sizes(few, rank).get("weight_versions", (0, 0))[0] for rank in range(4)]
    assert versions == [3 * 200, 2 * 200, 200, 0]
    unknown = [[one.term for one in rank.unknown] for rank in few.ranks]
    assert unknown == [[Term.ACTIVATIONS], [Term.ACTIVATIONS], [], []]
    both = of(plan_of(*[STAGE] * 4, kind="pipedream_2bw"))
    assert [sizes(both, rank)["weight_versions"][0] for rank in range(4)] == [200] * 4


def test_what_is_unknown_is_absent_and_named() -> None:
    assert unknown(of(plan_of(STAGE, training=None))) == {
        "weights",
        "gradients",
        "master_weights",
        "optimizer_moments",
    }
    without = plan_of(replace(STAGE, parameter_count=None), STAGE)
    assert unknown(of(without)) == {
        "weights",
        "gradients",
        "master_weights",
        "optimizer_moments",
    }
    assert "weights" in sizes(of(without), 1)
    memory = of(plan_of(replace(STAGE, activation_bytes=None), STAGE))
    assert unknown(memory) == {"activations"}
    assert ["activations" in sizes(memory, rank) for rank in range(2)] == [False, True]
    recomputes = replace(STAGE, recompute_seconds=1.0)
    assert unknown(of(plan_of(recomputes))) == {"recomputed_activations"}
    resolved = resolve(without)
    says = memory_says(resolved, plan_memory(resolved, plan_program(resolved)))
    assert {said.code for said in says.not_represented} == {
        f"memory_{term}" for term in unknown(of(without))
    }


def test_a_plan_of_forwards_trains_nothing() -> None:
    memory = of(plan_of(STAGE, kind="forward_only"))
    assert set(sizes(memory)) == {"weights", "activations"}
    assert unknown(memory) == set()


def test_boundary_buffers_are_two_of_the_largest() -> None:
    first = replace(STAGE, boundary_bytes=30, backward_boundary_bytes=50)
    middle = replace(STAGE, boundary_bytes=40)
    plan = replace(plan_of(*[STAGE] * 3), stages=(first, middle, STAGE))
    found = [sizes(of(plan), rank)["boundary_buffers"][0] for rank in range(3)]
    assert found == [100, 100, 80]
    plan = replace(plan, stages=(replace(STAGE, boundary_bytes=None), middle, STAGE))
    assert unknown(of(plan)) == {"boundary_buffers"}


def test_more_bytes_than_json_carries_are_refused() -> None:
    huge = replace(STAGE, parameter_count=2**53 - 1)
    assert refusals(lambda: of(plan_of(huge))) == [(FaultCode.OUT_OF_RANGE, ("costs",))]
    # More than fits into eight bytes, too.
    buffers = replace(BARE, communicators=4096, communicator_bytes=2**53 - 1)
    assert refusals(lambda: of(plan_of(STAGE, memory=buffers))) == [
        (FaultCode.OUT_OF_RANGE, ("memory",))
    ]


@pytest.mark.parametrize(
    ("kind", "ranks", "chunks"),
    [
        ("gpipe", 3, 1),
        ("1f1b", 3, 1),
        ("zb_h1", 3, 1),
        ("interleaved_1f1b", 2, 2),
        ("zb_v", 2, 2),
        ("dualpipe", 4, 1),
        ("chimera", 4, 1),
    ],
)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_peaks_are_those_of_a_walk_along_the_order(
    kind: str, ranks: int, chunks: int, data: st.DataObject
) -> None:
    """A slow reference: rank by rank, operation by operation, what is made and what is freed."""
    kept = data.draw(st.lists(st.integers(1, 99), min_size=ranks * chunks, max_size=ranks * chunks))
    bucket = data.draw(st.integers(0, 99))
    again = data.draw(st.integers(0, 50)) if kind in ("gpipe", "1f1b") else 0
    stages = [
        GivenStage(
            1.0,
            backward_input_seconds=1.0,
            backward_weight_seconds=1.0,
            activation_bytes=size,
            parameter_count=3,
            recompute_seconds=0.5 if again else None,
            recomputed_activation_bytes=again or None,
        )
        for size in kept
    ]
    memory = replace(BARE, gradient_bucket_bytes=bucket)
    training = replace(ADAM, gradient_dtype=DType.FP32)
    plan = plan_of(*stages, kind=kind, memory=memory, training=training, ranks=ranks, chunks=chunks)
    resolved = resolve(plan)
    program = plan_program(resolved)
    splits = OpKind.BACKWARD_WEIGHT in set(map(OpKind, program.kind.tolist()))
    for found in plan_memory(resolved, program).ranks:
        first, stop = program.rank_offsets[found.rank : found.rank + 2].tolist()
        alive = most = 0
        peak = first
        for operation in range(first, stop):
            op = OpKind(program.kind[operation])
            pair = op is OpKind.FORWARD_BACKWARD
            own, other = program.stage[operation], program.backward_stage[operation]
            if op is OpKind.FORWARD or pair:
                alive += kept[own]
            if op is OpKind.RECOMPUTE:
                alive += again
            makes = pair or op in (
                OpKind.BACKWARD,
                OpKind.BACKWARD_INPUT,
                OpKind.BACKWARD_WEIGHT,
            )
            if alive + bucket * makes > most:
                most, peak = alive + bucket * makes, operation
            if pair or op in (OpKind.BACKWARD, OpKind.BACKWARD_WEIGHT):
                alive -= kept[other] + again
        assert alive == 0
        held = len({int(stage) for stage in program.stage[first:stop]}) * 3 * 18
        assert found.verdict.total == held + most
        assert found.peak.operation == peak
        assert splits == (kind in ("zb_h1", "zb_v", "dualpipe"))


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 10_000),
    experts=st.integers(0, 10_000),
    data=st.sampled_from([1, 2, 4, 8]),
    expert=st.sampled_from([1, 2]),
    optimizer=st.sampled_from(list(Optimizer)),
)
def test_more_sharding_and_more_ranks_never_hold_more(
    *, count: int, experts: int, data: int, expert: int, optimizer: Optimizer
) -> None:
    stage = replace(STAGE, parameter_count=count + experts, expert_parameter_count=experts or None)

    def total(level: OptimizerSharding, ranks: int) -> int:
        training = Training(optimizer, weight_dtype=DType.BF16, optimizer_sharding=level)
        bare = replace(BARE, gradient_bucket_bytes=0)
        plan = plan_of(stage, training=training, memory=bare, data=ranks * expert, expert=expert)
        return of(plan).ranks[0].verdict.total

    totals = [total(level, data) for level in OptimizerSharding]
    assert totals == sorted(totals, reverse=True)
    for level, held in zip(OptimizerSharding, totals, strict=True):
        assert total(level, 2 * data) <= held
