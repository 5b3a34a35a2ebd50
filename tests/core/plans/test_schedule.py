"""What plans ask of each schedule: stages and their ranks, split backwards, pairs, orders."""

from dataclasses import replace

import pytest

from service.core.amounts import largest
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.graph import Model
from service.core.plans.check import check_plan
from service.core.plans.plan import (
    ActivationChange,
    Degrees,
    GivenStage,
    Partition,
    Placement,
    Plan,
    Schedule,
    TransferOrigin,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.plans.schedule import has_backward, pair_mode, splits_backward, stage_ranks
from service.core.profiles.profile import Measurement, Point, build_profile
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import PairMode
from tests.core.plans.worlds import chain, chain_profile, cluster, given_plan, profiled_plan

WHOLE = GivenStage(1.0, backward_seconds=2.0)
SPLIT = GivenStage(1.0, backward_input_seconds=1.0, backward_weight_seconds=1.0)


def plan(
    kind: str,
    *stages: GivenStage,
    pipeline: int | None = None,
    microbatches: int = 8,
    **schedule: object,
) -> Plan:
    chunks = SCHEDULES[kind].chunks or 1
    made = Schedule(kind, **{"chunks_per_rank": chunks, **schedule})  # type: ignore[arg-type]
    ranks = pipeline or len(stages) // made.chunks_per_rank
    base = given_plan(*stages, degrees=Degrees(ranks), workload=Workload(microbatches))
    return replace(base, schedule=made)


def told(asked: Plan) -> list[tuple[FaultCode, Path]]:
    with pytest.raises(InvalidInput) as refused:
        resolve(asked)
    assert check_plan(asked)
    return [(fault.code, fault.path) for fault in refused.value.faults]


def codes(asked: Plan) -> set[str]:
    resolved = resolve(asked)
    return {said.code for said in (*resolved.assumptions, *resolved.not_represented)}


def test_stages_of_a_v_turn_on_the_last_rank_for_nothing() -> None:
    stage = replace(SPLIT, transfer_seconds=0.5)
    resolved = resolve(plan("zb_v", stage, stage, stage, SPLIT))
    assert [stage.ranks for stage in resolved.stages] == [(0,), (1,), (1,), (0,)]
    assert [boundary.origin for boundary in resolved.boundaries] == [
        TransferOrigin.GIVEN,
        TransferOrigin.LOCAL,
        TransferOrigin.GIVEN,
    ]
    turn = resolved.boundaries[1]
    assert (turn.forward_picoseconds, turn.backward_picoseconds, turn.pairs) == (0, 0, ())
    assert [(p.source_rank, p.target_rank) for b in resolved.boundaries for p in b.pairs] == [
        (0, 1),
        (1, 0),
    ]
    assert "local_boundaries" in {said.code for said in resolved.assumptions}


def test_two_directions_cross_other_ranks_and_take_one_entry_a_stage() -> None:
    stage = replace(SPLIT, boundary_bytes=1_000_000)
    asked = replace(
        plan("dualpipe", stage, stage, stage, SPLIT),
        topology="two@1",
        placement=Placement(devices=("host0/gpu[0-1]", "host1/gpu[0-1]")),
    )
    resolved = resolve(asked, cluster=cluster())
    assert [stage.ranks for stage in resolved.stages] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    crossed = [
        (b.source, b.direction, b.pairs[0].source_rank, b.pairs[0].target_rank)
        for b in resolved.boundaries
    ]
    assert crossed == [
        (0, 0, 0, 1),
        (0, 1, 3, 2),
        (1, 0, 1, 2),
        (1, 1, 2, 1),
        (2, 0, 2, 3),
        (2, 1, 1, 0),
    ]
    # Only the middle boundary leaves a host, in either direction.
    slow = {b.source for b in resolved.boundaries if largest(b.forward_picoseconds) > 50_000_000}
    assert slow == {1}
    said = {said.code for said in (*resolved.assumptions, *resolved.not_represented)}
    assert {"two_copies", "two_copies_reduction"} <= said


@pytest.mark.parametrize("kind", [k for k, f in SCHEDULES.items() if not f.takes_order])
def test_split_backwards_need_both_halves(kind: str) -> None:
    stages = 4 * (SCHEDULES[kind].chunks or 1)
    asked = plan(kind, *[WHOLE] * stages)
    if not splits_backward(asked):
        resolved = resolve(asked)
        expected = 2 * 10**12 if has_backward(asked) else 0
        assert {stage.backward_picoseconds for stage in resolved.stages} == {expected}
        assert {stage.backward_input_picoseconds for stage in resolved.stages} == {None}
        return
    missing = [
        (FaultCode.MISSING_FIELD, ("costs", "stages", number, "backward_seconds"))
        for number in range(stages)
    ]
    assert told(asked) == missing
    nothing = plan(kind, *[GivenStage(1.0)] * stages)
    assert told(nothing)[0] == (
        FaultCode.MISSING_FIELD,
        ("costs", "stages", 0, "backward_input_seconds"),
    )
    resolved = resolve(plan(kind, *[SPLIT] * stages))
    first = resolved.stages[0]
    assert (first.backward_input_picoseconds, first.backward_weight_picoseconds) == (10**12, 10**12)
    assert first.backward_picoseconds == 2 * 10**12


def test_measured_halves_are_summed_and_needed() -> None:
    model: Model = chain(4)
    asked = replace(
        profiled_plan(Partition(cuts=(2,)), degrees=Degrees(2)), schedule=Schedule("zb_h1")
    )
    with pytest.raises(InvalidInput, match="no split of the backward was measured for l0, l1, l2"):
        resolve(asked, model=model, profile=chain_profile(4))
    split = build_profile(
        "gpu",
        None,
        [
            Measurement(
                f"l{i}", Point(2), 1e-3, backward_input_seconds=2e-3, backward_weight_seconds=3e-3
            )
            for i in range(4)
        ],
    )
    first, _ = resolve(asked, model=model, profile=split).stages
    assert first.backward_input_picoseconds == 4 * 10**9
    assert first.backward_weight_picoseconds == 6 * 10**9
    assert first.backward_picoseconds == 10 * 10**9


def test_a_given_order_says_how_many_stages_there_are() -> None:
    order = ("0F0 2F0 2B0 0B0", "1F0 1B0")
    asked = plan("explicit", *[WHOLE] * 3, pipeline=2, microbatches=1, order=order)
    resolved = resolve(asked)
    assert [stage.ranks for stage in resolved.stages] == [(0,), (1,), (0,)]
    two = plan("explicit", *[WHOLE] * 2, pipeline=2, microbatches=1, order=order)
    assert told(two) == [(FaultCode.WRONG_LENGTH, ("costs", "stages"))]
    unreadable = plan("explicit", WHOLE, WHOLE, pipeline=2, microbatches=1, order=("0F0", "X"))
    assert told(unreadable) == [(FaultCode.UNREADABLE, ("schedule", "order", 1))]
    assert stage_ranks(unreadable) is None
    split = plan("explicit", WHOLE, pipeline=1, microbatches=1, order=("0F0 0I0 0W0",))
    assert told(split) == [(FaultCode.MISSING_FIELD, ("costs", "stages", 0, "backward_seconds"))]


def test_an_order_that_blocks_is_found_before_it_is_priced() -> None:
    blocked = ("0F0 0B0 0F1 0B1", "1F1 1F0 1B0 1B1")
    asked = plan("explicit", WHOLE, WHOLE, microbatches=2, order=blocked)
    assert any("wait for each other for ever" in fault.detail for fault in check_plan(asked))
    early = ("0F0 1F0 0R0 1R0 1B0 0B0",)  # 0R0 stands before the gradient that 1B0 makes
    for before in (True, False):
        asked = plan(
            "explicit",
            WHOLE,
            WHOLE,
            pipeline=1,
            microbatches=1,
            order=early,
            recompute_before_gradient=before,
        )
        assert bool(check_plan(asked)) is not before


def test_every_fault_of_a_schedule_is_told_with_those_of_the_costs() -> None:
    asked = plan(
        "dualpipe",
        *[replace(WHOLE, forward_seconds=-1.0)] * 3,
        microbatches=5,
        group_size=2,
        order=("0F0",),
        chunks_per_rank=1,
    )
    found = told(replace(asked, schedule=replace(asked.schedule, order=None)))
    assert {path for _, path in found} >= {
        ("schedule", "group_size"),
        ("parallelism", "pipeline"),
        ("workload", "microbatches"),
        ("costs", "stages", 0, "forward_seconds"),
    }
    assert told(plan("gpipe", WHOLE, pair_mode=PairMode.FUSED)) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("schedule", "pair_mode"))
    ]


def test_pairs_are_fused_where_their_times_are_known() -> None:
    timed = replace(SPLIT, pair_seconds=2.5)
    assert pair_mode(plan("dualpipe_v", *[SPLIT] * 4)) is PairMode.SERIAL
    assert pair_mode(plan("dualpipe_v", *[timed] * 4)) is PairMode.FUSED
    assert pair_mode(plan("zb_v", *[timed] * 4)) is PairMode.SERIAL
    assert pair_mode(plan("dualpipe_v", *[timed] * 4, pair_mode=PairMode.SERIAL)) is PairMode.SERIAL
    summed = plan("dualpipe_v", *[SPLIT] * 4, pair_mode=PairMode.FUSED)
    assert "fused_pairs_summed" in codes(summed)
    assert "fused_pairs_summed" not in codes(plan("dualpipe_v", *[timed] * 4))
    resolved = resolve(plan("dualpipe_v", *[timed] * 4))
    assert {stage.pair_picoseconds for stage in resolved.stages} == {2_500_000_000_000}


def test_pairs_take_no_less_than_the_longer_half() -> None:
    slow = replace(SPLIT, backward_input_seconds=4.0, pair_seconds=5.5)
    quick = replace(SPLIT, pair_seconds=2.0)
    # Stage 0 is paired with stage 3, whose backward takes 5 s.
    found = told(plan("dualpipe_v", quick, quick, quick, slow))
    assert found == [(FaultCode.INCONSISTENT, ("costs", "stages", 0, "pair_seconds"))]
    some = told(plan("dualpipe_v", quick, SPLIT, quick, quick))
    assert some == [(FaultCode.MISSING_FIELD, ("costs", "stages", 1, "pair_seconds"))]


def test_deltas_add_up_and_stand_in_for_a_size() -> None:
    good = replace(SPLIT, activation_deltas=ActivationChange(100, -40, -60))
    (first, _) = resolve(plan("zb_h1", good, good)).stages
    assert first.activation_bytes == 100
    path = ("costs", "stages", 0, "activation_deltas")
    for deltas, size, code in (
        (ActivationChange(100, -40, -50), None, FaultCode.INCONSISTENT),
        (ActivationChange(100, -140, 40), None, FaultCode.OUT_OF_RANGE),
        (ActivationChange(100, -40, -60), 100, FaultCode.EXCLUSIVE_FIELDS),
    ):
        bad = replace(SPLIT, activation_deltas=deltas, activation_bytes=size)
        assert told(plan("zb_h1", bad, SPLIT)) == [(code, path)]


def test_bytes_made_again_stand_beside_what_is_kept_on_a_stage_that_recomputes() -> None:
    again = replace(SPLIT, recompute_seconds=1.0, activation_bytes=5)
    known = replace(again, recomputed_activation_bytes=20)
    resolved = resolve(plan("zb_h1", known, SPLIT))
    assert [stage.recomputed_bytes for stage in resolved.stages] == [20, 0]
    assert "recomputed_at_once" in {said.code for said in resolved.assumptions}
    assert "recompute_transient" not in codes(plan("zb_h1", known, SPLIT))
    (said,) = (
        said
        for said in resolve(plan("zb_h1", again, again)).not_represented
        if said.code == "recompute_transient"
    )
    assert "2 stages recompute" in said.detail
    deltas = ActivationChange(5, -2, -23, 20)
    of_halves = replace(again, activation_bytes=None, activation_deltas=deltas)
    (first, _) = resolve(plan("zb_h1", of_halves, SPLIT)).stages
    assert (first.activation_bytes, first.recomputed_bytes) == (5, 20)
    path = ("costs", "stages", 0)
    inside = (*path, "activation_deltas")
    for bad, code, place in (
        (
            replace(known, recompute_seconds=None),
            FaultCode.INCONSISTENT,
            (*path, "recomputed_activation_bytes"),
        ),
        (
            replace(known, recompute_seconds=0.0),
            FaultCode.INCONSISTENT,
            (*path, "recomputed_activation_bytes"),
        ),
        (
            replace(known, activation_bytes=None),
            FaultCode.MISSING_FIELD,
            (*path, "activation_bytes"),
        ),
        (
            replace(of_halves, recompute_seconds=None),
            FaultCode.INCONSISTENT,
            (*inside, "recompute_bytes"),
        ),
        (replace(of_halves, recomputed_activation_bytes=20), FaultCode.EXCLUSIVE_FIELDS, inside),
        (
            replace(of_halves, activation_deltas=ActivationChange(5, -2, -3, 20)),
            FaultCode.INCONSISTENT,
            inside,
        ),
        (
            replace(of_halves, activation_deltas=ActivationChange(5, -26, 1, 20)),
            FaultCode.OUT_OF_RANGE,
            inside,
        ),
    ):
        assert told(plan("zb_h1", bad, SPLIT)) == [(code, place)]


def test_what_is_never_drained_says_so() -> None:
    assert {"drained_run", "weight_stashes"} <= codes(plan("pipedream", WHOLE, WHOLE))
    assert not {"drained_run", "weight_stashes"} & codes(plan("1f1b", WHOLE, WHOLE))


def test_faults_are_plain_values() -> None:
    """The refusal of a schedule is the same wherever it is found."""
    asked = plan("chimera", *[WHOLE] * 4, microbatches=6)
    faults: list[Fault] = [f for f in check_plan(asked) if f.code is FaultCode.ILLEGAL_SCHEDULE]
    assert [(fault.path, fault.detail) for fault in faults] == [
        (("workload", "microbatches"), "a multiple of the 4 ranks, such as 4 or 8; got 6")
    ]


def test_an_interleaved_schedule_of_one_chunk_says_that_nothing_is_interleaved() -> None:
    stages = tuple(GivenStage(0.1, 0.2) for _ in range(4))
    for kind, chunks, said in (
        ("interleaved_1f1b", 1, True),
        ("looped_bfs", 1, True),
        ("interleaved_1f1b", 2, False),
        ("1f1b", 1, False),
    ):
        plan = Plan(
            degrees=Degrees(pipeline=4 // chunks),
            workload=Workload(microbatches=8),
            schedule=Schedule(kind=kind, chunks_per_rank=chunks),
            stages=stages,
        )
        details = {one.code: one.detail for one in resolve(plan).assumptions}
        assert ("one_chunk" in details) == said
        if said:
            assert "give 2 or more, and pipeline x chunks_per_rank stages" in details["one_chunk"]
