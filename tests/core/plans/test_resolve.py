"""A plan resolved: costs, batch, statements, and all faults at once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.amounts import Amount, largest
from service.core.errors import Fault, FaultCode, Path
from service.core.models.graph import Layer, RecordedSize, Tensor, build_model
from service.core.plans.check import check_plan
from service.core.plans.plan import (
    Degrees,
    GivenStage,
    Partition,
    Placement,
    Plan,
    Provenance,
    ResolvedPlan,
    Schedule,
    SkipRouting,
    TransferOrigin,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.profiles.profile import Measurement, Point, Recompute, build_profile
from tests.core.plans.worlds import chain, chain_profile, cluster, given_plan, profiled_plan
from tests.core.refusals import refusal_text, refusals

STAGE = GivenStage(1.0, backward_seconds=2.0)


def codes(resolved: ResolvedPlan) -> set[str]:
    return {said.code for said in (*resolved.assumptions, *resolved.not_represented)}


def told(faults: list[Fault]) -> list[tuple[FaultCode, Path]]:
    return [(fault.code, fault.path) for fault in faults]


def test_the_smallest_plan() -> None:
    resolved = resolve(given_plan(STAGE, STAGE))
    assert [
        (s.stage, s.rank, s.forward_picoseconds, s.backward_picoseconds) for s in resolved.stages
    ] == [(0, 0, 10**12, 2 * 10**12), (1, 1, 10**12, 2 * 10**12)]
    assert {stage.provenance for stage in resolved.stages} == {Provenance.GIVEN}
    assert resolved.microbatch_size is None
    assert resolved.held_fixed is None
    assert codes(resolved) == {
        "activation_buffers",
        "activation_bytes",
        "boundary_bytes",
        "contention",
        "loader_time",
        "memory",
        "optimizer_step",
        "physical_paths",
        "tokens_per_second",
        "zero_transfers",
    }


def test_chunks_of_a_rank_come_round_again() -> None:
    schedule = Schedule("interleaved_1f1b", chunks_per_rank=2)
    given_costs = replace(given_plan(*[STAGE] * 4, degrees=Degrees(2)), schedule=schedule)
    resolved = resolve(given_costs)
    assert [stage.rank for stage in resolved.stages] == [0, 1, 0, 1]
    pairs = [(p.source_rank, p.target_rank) for b in resolved.boundaries for p in b.pairs]
    assert pairs == [(0, 1), (1, 0), (0, 1)]
    measured = replace(
        profiled_plan(Partition(cuts=(1, 2, 3)), degrees=Degrees(2)), schedule=schedule
    )
    resolved = resolve(measured, model=chain(4), profile=chain_profile(4))
    assert [stage.rank for stage in resolved.stages] == [0, 1, 0, 1]


def test_a_split_backward_is_summed() -> None:
    split = GivenStage(1.0, backward_input_seconds=0.5, backward_weight_seconds=0.25)
    assert resolve(given_plan(split)).stages[0].backward_picoseconds == 750 * 10**9


def test_forward_only_leaves_the_backward_out_and_says_so() -> None:
    resolved = resolve(
        given_plan(replace(STAGE, recompute_seconds=1.0), GivenStage(3.0), kind="forward_only")
    )
    assert [stage.backward_picoseconds for stage in resolved.stages] == [0, 0]
    assert [stage.recompute_picoseconds for stage in resolved.stages] == [0, 0]
    assert "backward_ignored" in codes(resolved)
    assert "optimizer_step" not in codes(resolved)


def test_every_fault_of_given_stages_is_told() -> None:
    plan = given_plan(
        GivenStage(1.0),
        GivenStage(-1.0, backward_seconds=float("inf")),
        GivenStage(1.0, backward_seconds=1.0, backward_input_seconds=1.0),
        GivenStage(1.0, backward_weight_seconds=1.0),
        GivenStage(1.0, 1.0, backward_boundary_bytes=1, backward_transfer_seconds=1.0),
        GivenStage(1e-14, 1.0, boundary_bytes=1, transfer_seconds=1.0),
        degrees=Degrees(5),
    )
    stage = ("costs", "stages")
    expected = [
        (FaultCode.WRONG_LENGTH, stage),
        (FaultCode.MISSING_FIELD, (*stage, 0, "backward_seconds")),
        (FaultCode.OUT_OF_RANGE, (*stage, 1, "forward_seconds")),
        (FaultCode.OUT_OF_RANGE, (*stage, 1, "backward_seconds")),
        (FaultCode.EXCLUSIVE_FIELDS, (*stage, 2, "backward_seconds")),
        (FaultCode.MISSING_FIELD, (*stage, 3, "backward_input_seconds")),
        (FaultCode.MISSING_FIELD, (*stage, 4, "boundary_bytes")),
        (FaultCode.MISSING_FIELD, (*stage, 4, "transfer_seconds")),
        (FaultCode.TOO_SMALL_TO_REPRESENT, (*stage, 5, "forward_seconds")),
        (FaultCode.INCONSISTENT, (*stage, 5, "boundary_bytes")),
        (FaultCode.INCONSISTENT, (*stage, 5, "transfer_seconds")),
    ]
    assert refusals(lambda: resolve(plan)) == expected
    assert told(check_plan(plan)) == expected


def test_recompute_of_given_stages_is_given_too() -> None:
    plan = given_plan(replace(STAGE, recompute_seconds=0.5), STAGE, recompute="full")
    assert refusals(lambda: resolve(plan)) == [
        (FaultCode.MISSING_FIELD, ("costs", "stages", 1, "recompute_seconds"))
    ]
    both = given_plan(replace(STAGE, recompute_seconds=0.5), recompute="full")
    resolved = resolve(both)
    assert resolved.stages[0].recompute_picoseconds == 500 * 10**9
    assert "recompute_transient" in codes(resolved)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            {"model": "m", "profile": "p"},
            [(FaultCode.EXCLUSIVE_FIELDS, ("costs",))],
        ),
        (
            {"partition": Partition(cuts=())},
            [(FaultCode.EXCLUSIVE_FIELDS, ("partition",))],
        ),
        ({"stages": None}, [(FaultCode.MISSING_FIELD, ("costs",))]),
        (
            {"stages": None, "model": "m"},
            [
                (FaultCode.MISSING_FIELD, ("costs", "profile")),
                (FaultCode.MISSING_FIELD, ("partition",)),
            ],
        ),
        (
            {"placement": Placement(devices=("host0/gpu0",))},
            [(FaultCode.MISSING_FIELD, ("topology",))],
        ),
    ],
)
def test_parts_that_exclude_or_need_each_other(
    changes: dict[str, object], found: list[tuple[FaultCode, Path]]
) -> None:
    plan = replace(
        given_plan(STAGE, workload=Workload(8, microbatch_size=1)),
        **changes,  # type: ignore[arg-type]
    )
    assert told(check_plan(plan)) == found


def test_faults_of_all_parts_come_together() -> None:
    plan = replace(
        given_plan(
            GivenStage(1.0),
            topology="two@1",
            degrees=Degrees(1, data=3),
            workload=Workload(2, global_batch_size=7),
            placement=Placement(devices=("host0/gpu0", "host0/gpu9")),
        ),
        partition=Partition(cuts=()),
    )
    assert refusals(lambda: resolve(plan, cluster=cluster())) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("partition",)),
        (FaultCode.INDIVISIBLE, ("workload", "global_batch_size")),
        (FaultCode.UNKNOWN_NAME, ("placement", "devices", 1)),
        (FaultCode.MISSING_FIELD, ("costs", "stages", 0, "backward_seconds")),
    ]


def test_too_few_devices_are_told_with_both_numbers() -> None:
    plan = given_plan(*[STAGE] * 4, degrees=Degrees(4, tensor=2), topology="two@1")
    text = refusal_text(lambda: resolve(plan, cluster=cluster()))
    assert "8 ranks" in text
    assert "has 4" in text


def test_idle_devices_of_an_allocation_are_flagged() -> None:
    plan = given_plan(
        STAGE, STAGE, topology="two@1", placement=Placement(devices=("host[0-1]/gpu*",))
    )
    resolved = resolve(plan, cluster=cluster())
    (idle,) = [said for said in resolved.assumptions if said.code == "idle_devices"]
    assert idle.detail.startswith("2 devices")


def test_a_profile_prices_the_layers_of_each_stage() -> None:
    plan = profiled_plan(Partition(layers_per_stage=(1, 3, 2)), degrees=Degrees(3))
    resolved = resolve(plan, model=chain(6), profile=chain_profile(6, saved=10))
    assert [stage.forward_picoseconds for stage in resolved.stages] == [
        1 * 10**9,
        (2 + 3 + 4) * 10**9,
        (5 + 6) * 10**9,
    ]
    assert [stage.backward_picoseconds for stage in resolved.stages] == [
        2 * 10**9,
        18 * 10**9,
        22 * 10**9,
    ]
    assert [stage.activation_bytes for stage in resolved.stages] == [10, 30, 20]
    assert [stage.layers for stage in resolved.stages] == [
        ("l0",),
        ("l1", "l2", "l3"),
        ("l4", "l5"),
    ]
    assert [boundary.forward_bytes for boundary in resolved.boundaries] == [1000, 1003]
    assert resolved.global_batch_size == 16
    assert resolved.held_fixed == "microbatch_size"
    assert "activation_bytes" not in codes(resolved)
    (batch,) = [said for said in resolved.assumptions if said.code == "batch_follows"]
    assert batch.detail == ("microbatch_size is held fixed; global_batch_size = 16 follows from it")


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_the_partition_moves_costs_and_loses_none(counts: list[int]) -> None:
    layers = sum(counts)
    plan = profiled_plan(Partition(layers_per_stage=tuple(counts)), degrees=Degrees(len(counts)))
    stages = resolve(plan, model=chain(layers), profile=chain_profile(layers)).stages
    whole = layers * (layers + 1) // 2 * 10**9
    assert sum(largest(stage.forward_picoseconds) for stage in stages) == whole
    assert sum(largest(stage.backward_picoseconds) for stage in stages) == 2 * whole
    assert sum((stage.layers for stage in stages), ()) == tuple(f"l{i}" for i in range(layers))


def test_one_unknown_activation_leaves_a_stage_unknown() -> None:
    profile = chain_profile(3, saved=10)
    partly = build_profile(
        "gpu",
        None,
        [*profile.measurements[:2], replace(profile.measurements[2], saved_activation_bytes=None)],
    )
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2))
    resolved = resolve(plan, model=chain(3), profile=partly)
    assert [stage.activation_bytes for stage in resolved.stages] == [10, None]
    assert "activation_bytes" in codes(resolved)


def test_a_missing_point_names_layers_and_what_was_measured() -> None:
    plan = profiled_plan(
        Partition(cuts=(2,)), degrees=Degrees(2), workload=Workload(8, microbatch_size=4)
    )
    call = lambda: resolve(plan, model=chain(6), profile=chain_profile(6))  # noqa: E731
    assert refusals(call) == [
        (FaultCode.MISSING_PROFILE_POINT, ("costs", "profile")),
        (FaultCode.INCONSISTENT, ("workload", "microbatch_size")),
    ]
    text = refusal_text(call)
    assert "layers 'l0', 'l1', 'l2' and 3 more were not measured at microbatch_size 4" in text
    assert "measured: microbatch_size 2, no sequence_length" in text


def test_a_profile_without_backward_can_price_forwards_only() -> None:
    forwards = build_profile("gpu", None, [Measurement("l*", Point(2), 1e-3)])
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2))
    assert refusals(lambda: resolve(plan, model=chain(3), profile=forwards)) == [
        (FaultCode.MISSING_PROFILE_POINT, ("costs", "profile"))
    ]
    forward_only = replace(plan, schedule=Schedule("forward_only"))
    resolved = resolve(forward_only, model=chain(3), profile=forwards)
    assert [stage.forward_picoseconds for stage in resolved.stages] == [10**9, 2 * 10**9]
    assert [boundary.backward_bytes for boundary in resolved.boundaries] == [0]


def test_recompute_asks_for_other_measurements() -> None:
    full = Measurement(
        "l*", Point(2, recompute=Recompute.FULL), 1e-3, 2e-3, recompute_seconds=1.5e-3
    )
    profile = build_profile("gpu", None, [*chain_profile(3).measurements, full])
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2), recompute="full")
    resolved = resolve(plan, model=chain(3), profile=profile)
    assert [stage.recompute_picoseconds for stage in resolved.stages] == [
        1_500_000_000,
        3_000_000_000,
    ]
    # What those keep was not measured, and without it nobody knows what is made again.
    assert [stage.recomputed_bytes for stage in resolved.stages] == [None, None]
    assert "recompute_transient" in codes(resolved)
    # Without a backward nothing is recomputed, and the ordinary measurements are asked.
    forward_only = replace(plan, schedule=Schedule("forward_only"))
    resolved = resolve(forward_only, model=chain(3), profile=profile)
    assert [stage.forward_picoseconds for stage in resolved.stages] == [10**9, 5 * 10**9]
    assert "recompute_ignored" in codes(resolved)


def test_a_recomputation_makes_what_is_saved_without_one_less_what_it_kept() -> None:
    kept = Measurement(
        "l*",
        Point(2, recompute=Recompute.FULL),
        1e-3,
        2e-3,
        recompute_seconds=1.5e-3,
        saved_activation_bytes=30,
    )
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2), recompute="full")

    def made_again(saved: int | None) -> list[Amount | None]:
        profile = build_profile("gpu", None, [*chain_profile(3, saved=saved).measurements, kept])
        resolved = resolve(plan, model=chain(3), profile=profile)
        assert [stage.activation_bytes for stage in resolved.stages] == [30, 60]
        return [stage.recomputed_bytes for stage in resolved.stages]

    # Layers are computed again one by one, so what one of them makes is alive at once.
    assert made_again(100) == [70, 70]
    assert made_again(None) == [None, None]
    assert made_again(20) == [0, 0]


def test_a_recompute_that_a_forward_only_plan_states_is_not_dropped_in_silence() -> None:
    stage = GivenStage(1.0, backward_seconds=2.0, recompute_seconds=1.0)
    assert "recompute_ignored" in codes(resolve(given_plan(stage, kind="forward_only")))
    bare = replace(stage, recompute_seconds=None)
    assert "recompute_ignored" not in codes(resolve(given_plan(bare, kind="forward_only")))


def test_input_layers_cost_nothing_and_need_no_measurement() -> None:
    model = build_model(
        [Layer("in", "input"), Layer("l0", "x"), Layer("l1", "x")],
        [
            Tensor("x", "in", ("l0", "l1"), recorded=RecordedSize(64, 2), requires_gradient=False),
            Tensor("t", "l0", ("l1",), recorded=RecordedSize(8, 2)),
        ],
    )
    plan = profiled_plan(Partition(layers_per_stage=(1, 1, 1)), degrees=Degrees(3))
    resolved = resolve(plan, model=model, profile=chain_profile(2))
    assert [stage.forward_picoseconds for stage in resolved.stages] == [0, 10**9, 2 * 10**9]
    assert [(b.forward_bytes, b.backward_bytes) for b in resolved.boundaries] == [(64, 0), (72, 8)]


def test_inputs_from_outside_are_loaded_where_they_are_used() -> None:
    model = build_model(
        [Layer("l0", "x"), Layer("l1", "x")],
        [
            Tensor("tokens", None, ("l0", "l1"), recorded=RecordedSize(64, 2)),
            Tensor("t", "l0", ("l1",), recorded=RecordedSize(8, 2)),
        ],
    )
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2))
    resolved = resolve(plan, model=model, profile=chain_profile(2))
    assert resolved.boundaries[0].forward_bytes == 8
    assert "loads_at_each_stage" in codes(resolved)


def test_skips_go_straight_when_the_plan_says_direct() -> None:
    model = build_model(
        [Layer(f"l{i}", "x") for i in range(3)],
        [
            Tensor("skip", "l0", ("l2",), recorded=RecordedSize(5, 2)),
            Tensor("t0", "l0", ("l1",), recorded=RecordedSize(8, 2)),
            Tensor("t1", "l1", ("l2",), recorded=RecordedSize(9, 2)),
        ],
    )
    partition = Partition(cuts=(1, 2), skip_routing=SkipRouting.DIRECT)
    plan = profiled_plan(partition, degrees=Degrees(3), topology="two@1")
    resolved = resolve(plan, model=model, profile=chain_profile(3), cluster=cluster())
    assert [(b.source, b.target, b.forward_bytes) for b in resolved.boundaries] == [
        (0, 1, 8),
        (0, 2, 5),
        (1, 2, 9),
    ]
    assert all(boundary.origin is TransferOrigin.PATH for boundary in resolved.boundaries)


def test_what_parallel_ranks_do_among_themselves_is_named() -> None:
    plan = given_plan(STAGE, STAGE, degrees=Degrees(2, tensor=2, context=2, data=2))
    assert {
        "context_communication",
        "data_parallel_reduction",
        "tensor_communication",
        "uniform_ranks",
    } <= codes(resolve(plan))


def test_tensor_communication_is_represented_once_the_profile_gives_it() -> None:
    point = Point(2, tensor_parallel=2)
    silent = Measurement("l*", point, 1e-3, 2e-3)
    telling = replace(silent, tensor_parallel_communication_seconds=1e-4)
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2, tensor=2))
    for measurement, represented in ((silent, False), (telling, True)):
        resolved = resolve(plan, model=chain(2), profile=build_profile(None, None, [measurement]))
        assert ("tensor_communication" not in codes(resolved)) is represented


def test_a_context_rank_is_priced_at_its_share_and_says_so() -> None:
    profile = build_profile("gpu", None, [Measurement("l0", Point(2, 8), 1e-3, 2e-3)])
    plan = profiled_plan(
        Partition(cuts=()),
        degrees=Degrees(1, context=4),
        workload=Workload(8, microbatch_size=2, sequence_length=32),
    )
    resolved = resolve(plan, model=chain(1), profile=profile)
    assert resolved.stages[0].forward_picoseconds == 10**9
    assert "context_costs" in codes(resolved)
    assert "tokens_per_second" not in codes(resolved)


def test_stage_and_layer_numbers_are_checked_against_the_model() -> None:
    plan = profiled_plan(Partition(layers_per_stage=(1, 1, 1, 1)), degrees=Degrees(4))
    assert refusals(lambda: resolve(plan, model=chain(3), profile=chain_profile(3))) == [
        (FaultCode.TOO_FEW_LAYERS, ("parallelism", "pipeline"))
    ]


def test_documents_are_given_exactly_when_the_plan_names_them() -> None:
    with pytest.raises(ValueError, match="cluster"):
        resolve(given_plan(STAGE, topology="two@1"))
    with pytest.raises(ValueError, match="model"):
        resolve(given_plan(STAGE), model=chain(1))


def test_a_huge_world_is_refused_before_any_work() -> None:
    plan: Plan = given_plan(STAGE, degrees=Degrees(1, 4096, 4096, 4096))
    assert refusals(lambda: resolve(plan)) == [(FaultCode.WORK_BUDGET, ("parallelism",))]


def test_patterns_that_price_nothing_are_said() -> None:
    plan = profiled_plan(Partition(layers_per_stage=(2, 2)), degrees=Degrees(2))
    known = chain_profile(4)
    more = [Measurement(name, Point(2), 1e-3, 2e-3) for name in ("l9*", "block?", "l*x", "h*")]
    for patterns, said in (
        ([], None),
        (more[:1], "1 pattern fits no layer of the model, so what was measured under them"),
        (more, "4 patterns fit no layer of the model"),
    ):
        profile = build_profile("gpu", None, [*known.measurements, *patterns])
        resolved = resolve(plan, model=chain(4), profile=profile)
        details = {one.code: one.detail for one in resolved.assumptions}
        assert ("unfitting_patterns" in details) == (said is not None)
        if said is not None:
            assert said in details["unfitting_patterns"]
    assert details["unfitting_patterns"].endswith(": 'l9*', 'block?', 'l*x' and 1 more")
