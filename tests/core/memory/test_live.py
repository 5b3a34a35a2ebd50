"""Live activations from the order alone."""

import random
from dataclasses import replace

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.memory.live import ActivationDeltas, live_activations, series_times
from service.core.schedules.assemble import assemble_program
from service.core.schedules.build import build_program
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import RecomputeMode, StageEdge
from tests.core.schedules.event_simulator import random_plan, random_times
from tests.core.schedules.plans import compact, named_program, read_order, timeline


def peaks(schedule: str, ranks: int, microbatches: int) -> list[int]:
    return [
        r.peak_activations for r in live_activations(build_program(schedule, ranks, microbatches))
    ]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("microbatches", [1, 3, 4, 16])
def test_published_peaks(ranks: int, microbatches: int) -> None:
    assert peaks("gpipe", ranks, microbatches) == [microbatches] * ranks
    assert peaks("1f1b", ranks, microbatches) == [
        min(ranks - r, microbatches) for r in range(ranks)
    ]
    assert peaks("forward_only", ranks, microbatches) == [1] * ranks


def test_four_stages_and_sixteen_microbatches() -> None:
    assert peaks("1f1b", 4, 16) == [4, 3, 2, 1]


def test_series_and_what_is_alive_at_the_peak() -> None:
    line = timeline("1f1b", 3, [2, 3], [4, 5], latency=1)
    first, last = live_activations(line.program)
    # rank 0 runs F0 F1 B0 F2 B1 B2 as operations 0..5
    assert first.series_operation.tolist() == [0, 1, 2, 3, 4, 5]
    assert first.series_at_end.tolist() == [False, False, True, False, True, True]
    assert first.series_count.tolist() == [1, 2, 1, 2, 1, 0]
    assert (first.peak_activations, first.peak_operation) == (2, 1)
    assert first.alive == ((0, 0), (0, 1))
    assert series_times(line, first).tolist() == [
        line.run.start[0],
        line.run.start[1],
        line.run.end[2],
        line.run.start[3],
        line.run.end[4],
        line.run.end[5],
    ]
    assert last.alive == ((1, 0),)
    assert last.peak_operation == 6
    assert (first.peak_bytes, first.peak_bytes_operation) == (None, None)


def test_forward_only_frees_at_the_end_of_the_forward() -> None:
    (only,) = live_activations(build_program("forward_only", 1, 2), [7])
    assert only.series_at_end.tolist() == [False, True, False, True]
    assert only.series_count.tolist() == [1, 0, 1, 0]
    assert only.peak_bytes == 7


def test_bytes_may_peak_elsewhere_than_the_count() -> None:
    program = assemble_program(
        "explicit",
        [read_order("0F0 0F1 1F0 1B0 0B1 0B0 1F1 1B1")],
        stages=2,
        microbatches=2,
        stage_edges=(),
    )
    (live,) = live_activations(program, [1, 100])
    assert (live.peak_activations, live.peak_operation) == (3, 2)
    assert live.alive == ((0, 0), (1, 0), (0, 1))
    assert (live.peak_bytes, live.peak_bytes_operation) == (102, 2)
    (live,) = live_activations(program, [0, 100])
    assert live.peak_bytes == 100
    (live,) = live_activations(program, [5, 0])
    assert (live.peak_bytes, live.peak_bytes_operation) == (10, 1)


def test_split_backward_frees_with_its_second_half() -> None:
    program = assemble_program(
        "explicit",
        [read_order("0F0 0I0 0F1 0W0 0I1 0W1")],
        stages=1,
        microbatches=2,
        stage_edges=(),
    )
    (live,) = live_activations(program)
    assert live.series_count.tolist() == [1, 2, 1, 0]
    (live,) = live_activations(program, ActivationDeltas.of((10,), (-10,), (0,)))
    assert live.series_count.tolist() == [1, 0, 1, 0]
    assert live.peak_bytes == 10
    # F0 +10, I0 -4, F1 +10, W0 -6, I1 +1 and -5 net -4
    (live,) = live_activations(program, ActivationDeltas.of((10,), (-4,), (-6,)))
    assert (live.peak_bytes, live.peak_bytes_operation) == (16, 2)
    (live,) = live_activations(program, ActivationDeltas.of((10,), (5,), (-15,)))
    assert (live.peak_bytes, live.peak_bytes_operation) == (25, 2)


def test_what_is_recomputed_is_alive_anew_until_the_backward_frees_it() -> None:
    program = assemble_program(
        "explicit",
        [read_order("0F0 0F1 0R0 0B0 0R1 0B1")],
        stages=1,
        microbatches=2,
        recompute=RecomputeMode.AFTER_GRADIENT,
        stage_edges=(),
    )
    # Kept 2 of each from its forward; made again 10: 2, 4, 14, 2, 12, 0.
    (live,) = live_activations(program, ActivationDeltas.of((2,), (0,), (-12,), (10,)))
    assert live.series_operation.tolist() == [0, 1, 2, 3, 4, 5]
    assert live.series_at_end.tolist() == [False, False, False, True, False, True]
    assert live.series_count.tolist() == [1, 2, 2, 1, 1, 0]
    assert live.series_recomputed is not None
    assert live.series_recomputed.tolist() == [0, 0, 1, 0, 1, 0]
    assert (live.peak_activations, live.peak_recomputed) == (2, 1)
    assert (live.peak_bytes, live.peak_bytes_operation) == (14, 2)
    # Without bytes it is counted all the same, and on a stage that recomputes nothing it is not.
    (live,) = live_activations(program)
    assert (live.peak_recomputed, live.peak_bytes) == (1, None)
    (live,) = live_activations(program, [2], recomputing=frozenset())
    assert (live.peak_recomputed, live.series_recomputed, live.peak_bytes) == (None, None, 4)
    assert live.series_operation.tolist() == [0, 1, 3, 5]


def test_what_is_recomputed_waits_for_a_late_weight_half_unless_the_input_half_frees_it() -> None:
    program = assemble_program(
        "explicit",
        [read_order("0F0 0R0 0I0 0F1 0R1 0I1 0W0 0W1")],
        stages=1,
        microbatches=2,
        recompute=RecomputeMode.AFTER_GRADIENT,
        stage_edges=(),
    )
    # 2, 12, 12, 14, 24, 24, 12, 0.
    (live,) = live_activations(program, ActivationDeltas.of((2,), (0,), (-12,), (10,)))
    assert (live.peak_recomputed, live.peak_bytes, live.peak_bytes_operation) == (2, 24, 4)
    # 2, 12, 0, 2, 12, 0.
    (live,) = live_activations(program, ActivationDeltas.of((2,), (-12,), (0,), (10,)))
    assert (live.peak_recomputed, live.peak_bytes, live.peak_bytes_operation) == (1, 12, 1)
    # 2, 12, 16 (I adds 4), 18, 28, 32, 16, 0.
    (live,) = live_activations(program, ActivationDeltas.of((2,), (4,), (-16,), (10,)))
    assert (live.peak_bytes, live.peak_bytes_operation) == (32, 5)


def test_bytes_of_what_is_not_recomputed_are_refused() -> None:
    program = build_program("1f1b", 2, 2)
    with pytest.raises(InvalidInput, match="nothing is recomputed") as refused:
        live_activations(program, ActivationDeltas.of((1, 1), (0, 0), (-1, -4), (0, 3)))
    assert [fault.path for fault in refused.value.faults] == [("costs", "stages", 1)]
    with pytest.raises(InvalidInput, match="between 0 and"):
        live_activations(program, ActivationDeltas.of((3, 3), (0, 0), (-3, -2), (0, -1)))


def test_what_is_passed_on_is_there_during_an_operation_alone() -> None:
    """F0 5, I0 5, W0 5 of its own; 100 more in each forward and 30 in each input half."""
    orders = [read_order("0F0 0I0 0F1 0W0 0I1 0W1")]
    program = assemble_program("explicit", orders, stages=1, microbatches=2, stage_edges=())
    own = ActivationDeltas.kept_to_the_end((5,))
    passed_on = np.array([[0, 100]]), np.array([[30, 0]])
    (live,) = live_activations(program, replace(own, passed_on=passed_on))
    assert (live.peak_bytes, live.peak_bytes_operation) == (5 + 5 + 100, 2)
    assert live.series_count.tolist() == [1, 2, 1, 0]
    (live,) = live_activations(program, replace(own, passed_on=(passed_on[0] * 0, passed_on[1])))
    assert (live.peak_bytes, live.peak_bytes_operation) == (5 + 30, 1)
    with pytest.raises(InvalidInput, match="between 0 and"):
        live_activations(program, replace(own, passed_on=(passed_on[0], -passed_on[1])))


def test_in_a_pair_both_ways_are_passed_on_at_once() -> None:
    program = assemble_program(
        "explicit",
        [read_order("0F0 1F0 0F1&1B0 1F1 0B0 1B1 0B1")],
        stages=2,
        microbatches=2,
        stage_edges=(),
    )
    own = ActivationDeltas.kept_to_the_end((1, 100))
    passed_on = np.array([[1000], [0]]), np.array([[0], [500]])
    (live,) = live_activations(program, replace(own, passed_on=passed_on))
    assert (live.peak_bytes, live.peak_bytes_operation) == (102 + 1500, 2)


def test_a_pair_adds_before_it_frees() -> None:
    program = assemble_program(
        "explicit",
        [read_order("0F0 1F0 0F1&1B0 1F1 0B0 1B1 0B1")],
        stages=2,
        microbatches=2,
        stage_edges=(),
    )
    (live,) = live_activations(program, [1, 100])
    assert live.series_count.tolist() == [1, 2, 3, 2, 3, 2, 1, 0]
    assert live.alive == ((0, 0), (1, 0), (0, 1))
    assert live.peak_bytes == 102


def test_equals_a_count_with_sets(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(600):
        schedule = rng.choice(list(SCHEDULES))
        plan = random_plan(rng, schedule, fused=number % 2 == 1)
        program = named_program(plan, schedule)
        every = range(program.microbatches)
        made = random_times(rng, program.stages, len(every), 9, alike=rng.random() < 0.5)
        # The input half may also add.
        first = [[rng.randint(-size, 3) for size in row] for row in made]
        stages = range(program.stages)
        recomputes = any(op[0] == "R" for order in plan.orders for op in order)
        recomputing = frozenset(s for s in stages if recomputes and rng.random() < 0.8)
        again = random_times(rng, program.stages, len(every), 9, alike=rng.random() < 0.5)
        again = [[size * (s in recomputing) for size in again[s]] for s in stages]
        changes = {
            "F": made,
            "R": again,
            "I": first,
            "W": [[-made[s][m] - again[s][m] - first[s][m] for m in every] for s in stages],
            "B": [[-made[s][m] - again[s][m] for m in every] for s in stages],
        }
        deltas = ActivationDeltas.of(compact(made), first, changes["W"], again)
        forward_only = not {"B", "I", "W"} & {op[0] for order in plan.orders for op in order}
        for rank, live in enumerate(live_activations(program, deltas, recomputing=recomputing)):
            anew: set[tuple[int, int]] = set()
            most_anew = 0
            alive: set[tuple[int, int]] = set()
            most: set[tuple[int, int]] = set()
            now = most_bytes = 0
            for operation in plan.orders[rank]:
                parts = plan.parts(operation)
                added = [(m, s) for letter, s, m in parts if letter == "F"]
                alive.update(added)
                now += sum(
                    max(changes[letter][s][m], 0) for letter, s, m in parts if letter in "FRIW"
                )
                anew.update((m, s) for letter, s, m in parts if letter == "R" and s in recomputing)
                most_anew = max(most_anew, len(anew))
                most = set(alive) if len(alive) > len(most) else most
                most_bytes = max(most_bytes, now)
                for letter, s, m in parts:
                    if letter == "R" or (letter == "F" and not forward_only):
                        continue
                    freed = -made[s][m] if letter == "F" else min(changes[letter][s][m], 0)
                    now += freed
                    gone_early = letter == "I" and changes["W"][s][m] == 0 and first[s][m] != 0
                    if gone_early or letter in "BWF":
                        alive.discard((m, s))
                        anew.discard((m, s))
            assert set(live.alive) == {(s, m) for m, s in most}
            assert live.peak_activations == len(most) == len(live.alive)
            assert live.peak_bytes == most_bytes
            assert live.series_count[-1] == 0
            assert live.peak_recomputed == (most_anew if recomputing else None)
            if live.series_recomputed is not None:
                assert len(live.series_recomputed) == len(live.series_count)
                assert live.series_recomputed[-1] == 0
                assert (live.series_recomputed <= live.series_count).all()


def test_does_not_depend_on_durations() -> None:
    slow, quick = timeline("1f1b", 9, [9, 1], [1, 9]), timeline("1f1b", 9, [1, 1], [1, 1], 40)
    for a, b in zip(live_activations(slow.program), live_activations(quick.program), strict=True):
        assert np.array_equal(a.series_count, b.series_count)


def test_bad_sizes_are_refused() -> None:
    program = build_program("gpipe", 2, 2, stage_edges=(StageEdge(0, 1),))
    with pytest.raises(InvalidInput, match="one for each of 2; got 1 x 1"):
        live_activations(program, [1])
    with pytest.raises(InvalidInput, match="one for each of 2; got 2 x 3"):
        live_activations(program, [[1, 1, 1], [1, 1, 1]])
    with pytest.raises(InvalidInput, match="between 0 and 9007199254740991"):
        live_activations(program, [1, -1])
    with pytest.raises(InvalidInput, match="between 0 and 9007199254740991"):
        live_activations(program, [2**53, 1])


def test_a_peak_that_json_would_not_carry_is_refused() -> None:
    program = build_program("gpipe", 2, 2)
    at_most = 2**53 - 1
    assert live_activations(program, [1, at_most // 2])[1].peak_bytes == at_most - 1
    with pytest.raises(InvalidInput, match=f"reach {at_most + 1} bytes; at most {at_most}"):
        live_activations(program, [1, at_most // 2 + 1])


def test_bad_deltas_are_refused() -> None:
    program = build_program("zb_h1", 2, 2)
    with pytest.raises(InvalidInput, match="deltas sum to 0; these to 3") as refused:
        live_activations(program, ActivationDeltas.of((10, 10), (-4, -4), (-6, -3)))
    assert [fault.path for fault in refused.value.faults] == [("costs", "stages", 1)]
    with pytest.raises(InvalidInput, match="between 0 and"):
        live_activations(program, ActivationDeltas.of((-1, 1), (0, 0), (1, -1)))
