"""Named schedules: what is legal, recompute, edges, the cache."""

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.schedules.build import (
    MAX_OPERATIONS,
    build_program,
    chain,
    count_operations,
    with_microbatches,
)
from service.core.schedules.catalogue import SCHEDULES, check_shape
from service.core.schedules.program import OpKind, PairMode, RecomputeMode, StageEdge
from service.core.schedules.shape import Shape, near_even
from tests.core.schedules.plans import write_order
from tests.core.schedules.reference_orders import Word, rank_orders, shapes_of

NAMED = [name for name, family in SCHEDULES.items() if not family.takes_order]


@pytest.mark.parametrize("schedule", NAMED)
def test_orders_equal_those_told_another_way(schedule: str) -> None:
    largest = 4 if SCHEDULES[schedule].passes else 6
    for ranks, microbatches, chunks, group in shapes_of(schedule, largest):
        for mode in PairMode:
            fused = mode is PairMode.FUSED
            expected = rank_orders(
                schedule, ranks, microbatches, chunks=chunks, group=group, fused=fused
            )
            program = build_program(
                schedule, ranks, microbatches, chunks_per_rank=chunks, pair_mode=mode
            )
            found = [write_order(program, rank) for rank in range(ranks)]
            assert found == [" ".join(written(word) for word in order) for order in expected]
            most = count_operations(schedule, ranks, microbatches, chunks_per_rank=chunks)
            assert program.operations <= most
            assert program.operations == most or SCHEDULES[schedule].has_pairs


def written(word: Word) -> str:
    letter, stage, microbatch = word[:3]
    if len(word) == 5:
        return f"{stage}F{microbatch}&{word[3]}B{word[4]}"
    return f"{stage}{letter}{microbatch}"


@pytest.mark.parametrize("schedule", NAMED)
def test_stages_live_where_the_placement_says(schedule: str) -> None:
    family = SCHEDULES[schedule]
    for ranks, microbatches, chunks, group in shapes_of(schedule):
        program = build_program(schedule, ranks, microbatches, chunks_per_rank=chunks)
        shape = Shape(ranks, microbatches, chunks, group)
        assert program.stage_ranks.tolist() == [list(way) for way in family.placement(shape)]
        assert program.directions == family.directions
        homes = program.stage_ranks[program.microbatch % program.directions, program.stage]
        assert np.array_equal(homes, program.rank)


def test_stages_of_a_v_turn_without_a_transfer() -> None:
    program = build_program("zb_v", 4, 8)
    assert program.stage_ranks.tolist() == [[0, 1, 2, 3, 3, 2, 1, 0]]
    assert 3 not in program.input_edges  # the edge from stage 3 to stage 4 stays on rank 3


def test_two_directions_have_edges_of_their_own() -> None:
    program = build_program("dualpipe", 4, 8)
    assert program.stage_ranks.tolist() == [[0, 1, 2, 3], [3, 2, 1, 0]]
    assert program.stage_edges == chain(4, 2)
    for edge in range(6):
        producers = program.inputs[program.input_edges == edge]
        assert set(program.microbatch[producers] % 2) == {program.stage_edges[edge].direction}
    with pytest.raises(InvalidInput, match="from a lower to a higher"):
        build_program("1f1b", 2, 2, stage_edges=(StageEdge(0, 1, 1),))


@pytest.mark.parametrize("schedule", NAMED)
def test_counts_are_refused_with_what_would_be_legal(schedule: str) -> None:
    """Whatever is not refused runs, and the refusals point at the counts."""
    family = SCHEDULES[schedule]
    for ranks in range(1, 6):
        for microbatches in range(1, 14):
            for chunks in (1, 2, 3):
                shape = Shape(ranks, microbatches, chunks)
                faults = check_shape(family, shape)
                assert all(fault.code is FaultCode.ILLEGAL_SCHEDULE for fault in faults)
                assert {fault.path for fault in faults} <= {
                    ("schedule", "chunks_per_rank"),
                    ("workload", "microbatches"),
                    ("parallelism", "pipeline"),
                }
                if not faults:
                    program = build_program(schedule, ranks, microbatches, chunks_per_rank=chunks)
                    assert program.stages == ranks * chunks


@pytest.mark.parametrize("schedule", NAMED)
def test_a_number_that_a_refusal_names_is_one_that_would_do(schedule: str) -> None:
    family = SCHEDULES[schedule]
    groups = (None, 1, 3, 5, 50) if family.takes_groups else (None,)
    fields = {"pipeline": "ranks"} | {
        name: name for name in ("microbatches", "chunks_per_rank", "group_size")
    }
    for ranks, microbatches, chunks, group in product(range(1, 8), range(1, 16), (1, 2, 3), groups):
        shape = family.shape(ranks, microbatches, chunks_per_rank=chunks, group_size=group)
        for fault in check_shape(family, shape):
            field = fields[str(fault.path[-1])]
            named = {int(text) for text in re.findall(r"\d+", fault.detail.split("; got")[0])}
            changes: list[dict[str, Any]] = [{field: number} for number in named if number]
            others = [replace(shape, **change) for change in changes]
            assert any(
                fault.path not in {left.path for left in check_shape(family, other)}
                for other in others
            ), fault


@pytest.mark.parametrize(("number", "words"), [(1, "2"), (2, "2"), (3, "2 or 4"), (8, "8")])
def test_the_even_numbers_next_to_a_number(number: int, words: str) -> None:
    assert near_even(number) == words


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_a_schedule_does_not_take_names_those_that_do(schedule: str) -> None:
    options: dict[str, Any] = {
        "group_size": 4,
        "order": ("0F0 0B0",),
        "memory_limit_activations": 2,
        "chunks_per_rank": 5,
    }
    refusals = {FaultCode.EXCLUSIVE_FIELDS, FaultCode.ILLEGAL_SCHEDULE}

    def faults(name: str, field: str) -> list[Fault]:
        family = SCHEDULES[name]
        found = check_shape(family, family.shape(4, 8, **{field: options[field]}))
        return [one for one in found if one.path == ("schedule", field) and one.code in refusals]

    for field in options:
        for fault in faults(schedule, field):
            named = [name for name in SCHEDULES if re.search(rf"\b{name}\b", fault.detail)]
            others = [name for name in named if name != schedule]
            assert others
            assert not [left for other in others for left in faults(other, field)]


def test_what_a_schedule_does_not_take_is_refused() -> None:
    for given in ({"group_size": 2}, {"order": ("0F0",)}, {"memory_limit_activations": 2}):
        with pytest.raises(InvalidInput) as refused:
            build_program("1f1b", 2, 4, **given)
        assert [fault.code for fault in refused.value.faults] == [FaultCode.EXCLUSIVE_FIELDS]


def test_the_same_schedule_with_other_counts() -> None:
    program = build_program("interleaved_1f1b", 4, 8, chunks_per_rank=2)
    other = with_microbatches(program, 16)
    assert other is build_program("interleaved_1f1b", 4, 16, chunks_per_rank=2)
    assert with_microbatches(program, 14) is None
    assert with_microbatches(build_program("dualpipe_v", 4, 8), 4) is None
    assert with_microbatches(build_program("explicit", 1, 1, order=("0F0 0B0",)), 2) is None
    assert with_microbatches(program, 10**9) is None


def test_a_recomputation_stands_before_the_pair_that_needs_it() -> None:
    program = build_program(
        "dualpipe_v", 1, 3, pair_mode=PairMode.FUSED, recompute=RecomputeMode.AFTER_GRADIENT
    )
    words = write_order(program, 0).split()
    for place, word in enumerate(words):
        if "&" in word:
            assert words[place - 1] == word.partition("&")[2].replace("B", "R")


def test_fewer_microbatches_than_ranks() -> None:
    program = build_program("1f1b", 4, 2)
    assert [write_order(program, r) for r in range(4)] == [
        "0F0 0F1 0B0 0B1",
        "1F0 1F1 1B0 1B1",
        "2F0 2F1 2B0 2B1",
        "3F0 3B0 3F1 3B1",
    ]


def test_recompute_stands_before_each_backward_and_may_carry_its_gradient() -> None:
    waits = {}
    for mode in (RecomputeMode.AFTER_GRADIENT, RecomputeMode.BEFORE_GRADIENT):
        program = build_program("gpipe", 2, 2, recompute=mode)
        assert write_order(program, 0) == "0F0 0F1 0R0 0B0 0R1 0B1"
        assert program.operations == count_operations("gpipe", 2, 2, recompute=mode)
        consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
        waits[mode] = {OpKind(program.kind[i]).letter for i in consumers}
        producers = {OpKind(program.kind[i]).letter for i in program.inputs}
        assert producers == {"F", "B"}
    assert waits == {
        RecomputeMode.AFTER_GRADIENT: {"F", "R"},
        RecomputeMode.BEFORE_GRADIENT: {"F", "B"},
    }


def test_forward_only_has_nothing_to_recompute() -> None:
    program = build_program("forward_only", 2, 3, recompute=RecomputeMode.AFTER_GRADIENT)
    assert set(program.kind.tolist()) == {OpKind.FORWARD}


def test_skip_edges_go_straight_and_keep_their_place() -> None:
    edges = (StageEdge(0, 2), StageEdge(1, 2), StageEdge(0, 1))
    program = build_program("1f1b", 3, 4, stage_edges=edges)
    assert program.stage_edges == edges
    assert len(program.inputs) == 2 * 3 * 4
    assert np.bincount(program.input_edges).tolist() == [8, 8, 8]


def test_programs_are_shared() -> None:
    assert build_program("1f1b", 4, 8) is build_program("1f1b", 4, 8, stage_edges=chain(4))
    assert build_program("1f1b", 4, 8) is not build_program("1f1b", 4, 9)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        build_program("1f1b", 0, 0, chunks_per_rank=-1)
    assert [fault.path for fault in refused.value.faults] == [
        ("parallelism", "pipeline"),
        ("workload", "microbatches"),
        ("schedule", "chunks_per_rank"),
    ]
    with pytest.raises(InvalidInput) as refused:
        build_program(
            "gpipe", 2, 1, chunks_per_rank=2, stage_edges=(StageEdge(1, 1), StageEdge(0, 9))
        )
    assert [fault.code for fault in refused.value.faults] == [
        FaultCode.ILLEGAL_SCHEDULE,
        FaultCode.INCONSISTENT,
        FaultCode.INCONSISTENT,
    ]
    with pytest.raises(InvalidInput, match="given once"):
        build_program("gpipe", 2, 1, stage_edges=(StageEdge(0, 1), StageEdge(0, 1)))


def test_unknown_schedules_are_told_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"one of forward_only, gpipe, .*; got 'g-pipe'"):
        build_program("g-pipe", 2, 1)


def test_too_much_work_is_refused_before_it_is_done() -> None:
    with pytest.raises(WorkBudgetExceeded) as refused:
        build_program("1f1b", 4, 10**9)
    assert refused.value.faults[0].path == ("workload", "microbatches")
    with pytest.raises(WorkBudgetExceeded):
        build_program("1f1b", MAX_OPERATIONS, 1)
