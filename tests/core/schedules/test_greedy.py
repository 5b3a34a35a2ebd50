"""Schedules made by trying: published values, limits at every instant, and the slow reference."""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.schedules import weight_filling
from service.core.schedules.bounds import makespan_lower_bounds
from service.core.schedules.build import build_program, with_microbatches
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.gains import OperationChange
from service.core.schedules.greedy_kernels import NOT_RUN
from service.core.schedules.order_costs import OrderCosts, equal_costs
from service.core.schedules.program import OpKind, Program
from service.core.schedules.shape import Shape
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from service.core.schedules.v_blocks import block_orders, block_peak
from service.core.schedules.v_half import v_half_block
from service.core.schedules.v_min import v_min_block
from service.core.schedules.zb_auto import MOST_PASSES, zb_auto_orders
from tests.core.schedules import greedy_reference
from tests.core.schedules.plans import (
    exact_gain,
    simulate_timeline,
    timeline,
    write_order,
)
from validation.zero_bubble import SEQUENCE_LENGTH, TABLE, Case

MICROSECOND = 10**6

# Eight stages of a profiled model, the first and the last with more to do.
UNEVEN = (
    [30715, 29233, 29106, 29078, 28850, 28919, 28924, 41678],
    [31308, 29344, 29357, 29455, 29217, 29384, 29354, 38731],
    [18746, 18789, 19062, 19367, 19455, 19967, 20096, 32833],
)


def zb_auto(
    microbatches: int,
    times: tuple[list[int], list[int], list[int]],
    latency: int,
    limit: int | None = None,
    memory: tuple[list[int], list[int]] | None = None,
) -> Timeline:
    """A chain, its order made for its own times."""
    ranks = len(times[0])
    edges = [(s, s + 1) for s in range(ranks - 1)]
    late = [latency] * len(edges)
    program = build_program(
        "zb_auto",
        ranks,
        microbatches,
        memory_limit_activations=limit,
        costs=OrderCosts.of(edges, times, (late, late), memory),
    )
    stage_times = StageTimes.of(times[0], backward_halves=(times[1], times[2]))
    return simulate_timeline(program, stage_times, latency)


def span(line: Timeline) -> int:
    return int((line.last_end - line.first_start).max())


def most_kept(program: Program, made: list[int], change: list[int]) -> list[int]:
    """The most that each rank keeps, counted word by word from the written order."""
    peaks = []
    for rank in range(program.ranks):
        kept = peak = 0
        for word in write_order(program, rank).split():
            letter = next(letter for letter in word if letter.isalpha())
            stage = int(word.split(letter)[0])
            adds = {
                "F": made,
                "I": change,
                "W": [-m - c for m, c in zip(made, change, strict=True)],
            }
            kept += adds[letter][stage]
            peak = max(peak, kept, kept - min(adds[letter][stage], 0))
        assert kept == 0
        peaks.append(peak)
    return peaks


@pytest.mark.parametrize("case", [case for case, _ in TABLE], ids=str)
def test_zb_auto_keeps_to_its_limit_on_published_inputs(case: Case) -> None:
    """What it reaches there stands in `validation`."""
    ranks, microbatches = case.ranks, case.microbatches
    f, i, w = case.forward, case.backward_input, case.backward_weight
    made = 34 * case.hidden + 5 * case.heads * SEQUENCE_LENGTH
    memory = [made] * ranks, [32 * case.hidden - made] * ranks
    times = [f * MICROSECOND] * ranks, [i * MICROSECOND] * ranks, [w * MICROSECOND] * ranks
    latency = case.latency * MICROSECOND
    for twice in (1, 2):
        line = zb_auto(microbatches, times, latency, twice * ranks, memory)
        assert max(most_kept(line.program, *memory)) <= twice * ranks * made
        edges = [latency] * (ranks - 1)
        bounds = makespan_lower_bounds(line.program, line.times, edges, edges)
        assert line.makespan >= max(bound.picoseconds for bound in bounds)
        assert span(line) >= microbatches * (f + i + w) * MICROSECOND


def test_zb_1p_has_a_third_of_the_bubble_of_1f1b_and_its_memory() -> None:
    for ranks, bubble in ((8, 70), (16, 150)):
        line = timeline("zb_auto", 8 * ranks, [10] * ranks, halves=([10] * ranks, [10] * ranks))
        assert line.makespan - 8 * ranks * 30 == bubble
        assert max(most_kept(line.program, [1] * ranks, [0] * ranks)) == ranks


def test_uneven_stages_reach_the_work_of_the_slowest() -> None:
    """Known inputs, no published answer: the lower bound is met at P activations already."""
    times = tuple([t * MICROSECOND for t in of_kind] for of_kind in UNEVEN)
    assert len(times) == 3
    for limit in (8, 16):
        line = zb_auto(32, times, 473 * MICROSECOND, limit)
        edges = [473 * MICROSECOND] * 7
        bounds = makespan_lower_bounds(line.program, line.times, edges, edges)
        assert line.makespan == max(bound.picoseconds for bound in bounds)
    # With half the memory the way there and back has too few microbatches on it.
    assert zb_auto(32, times, 473 * MICROSECOND, 4).makespan > 1.2 * line.makespan


# In units of a chunk's forward = input half = weight half, 8 P microbatches: what was measured of
# the published implementation, bubble and activations of a chunk.
@pytest.mark.parametrize(
    ("schedule", "ranks", "bubble", "peak"),
    [("v_half", 8, 17, 10), ("v_half", 16, 41, 18), ("v_min", 8, 27, 8), ("v_min", 16, 59, 12)],
)
def test_v_shapes_are_no_worse_than_measured(
    schedule: str, ranks: int, bubble: int, peak: int
) -> None:
    stages = [1] * (2 * ranks)
    line = timeline(schedule, 8 * ranks, stages, halves=(stages, stages), chunks=2)
    assert line.makespan - 8 * ranks * 6 <= bubble
    assert max(most_kept(line.program, stages, [0] * 2 * ranks)) <= peak


@pytest.mark.parametrize(("block", "part"), [(v_half_block, 2), (v_min_block, 3)])
def test_blocks_fit_together_and_bound_what_is_kept(block: object, part: int) -> None:
    make = v_half_block if block is v_half_block else v_min_block
    schedule = "v_half" if part == 2 else "v_min"
    for ranks in [*range(1, 41), 64, 96]:
        made = make(ranks)
        assert all(len({int(slot) % 6 for slot in rank}) == 4 for rank in made.slots.T)
        peak = block_peak(made)
        assert peak == greedy_reference.block_peak(schedule, ranks)
        assert 2 * ranks / part <= peak <= -(-2 * ranks // part) + 2
        for microbatches in {1, 2, ranks // 4, ranks, 3 * ranks} - {0}:
            orders = block_orders(made, Shape(ranks, microbatches, 2))
            for order in orders:
                steps = np.select(
                    [order.kind == OpKind.FORWARD, order.kind == OpKind.BACKWARD_WEIGHT], [1, -1]
                )
                assert np.cumsum(steps).max() <= peak


def random_costs(rng: random.Random, ranks: int) -> greedy_reference.Costs:
    """Uneven, with zeros and ties; the chain, at times with edges that skip stages."""
    edges = [(s, s + 1) for s in range(ranks - 1)]
    skips = [(a, b) for b in range(ranks) for a in range(b - 1)]
    edges += [edge for edge in skips if rng.random() < 0.15]
    most = rng.choice([1, 3, 20])
    made = [rng.randint(0, 9) for _ in range(ranks)]
    return greedy_reference.Costs(
        edges,
        *([rng.randint(0, most) for _ in range(ranks)] for _ in range(3)),
        *([rng.randint(0, 4) for _ in edges] for _ in range(2)),
        *((made, [rng.randint(-m, 3) for m in made]) if rng.random() < 0.6 else ()),
    )


def service_costs(costs: greedy_reference.Costs) -> OrderCosts:
    return OrderCosts.of(
        costs.edges,
        (costs.forward, costs.half, costs.weight),
        (costs.there, costs.back),
        (costs.made, costs.change),
    )


def test_zb_auto_equals_the_slow_reference(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        ranks, microbatches = rng.randint(1, 5), rng.randint(1, 8)
        limit = rng.choice([None, 1, 2, ranks, 2 * ranks])
        costs = random_costs(rng, ranks)
        program = build_program(
            "zb_auto",
            ranks,
            microbatches,
            memory_limit_activations=limit,
            costs=service_costs(costs),
        )
        ones = [
            (m, c) if max(m, m + c) else (1, 0)
            for m, c in zip(costs.made, costs.change, strict=True)
        ]
        costs.made, costs.change = [m for m, _ in ones], [c for _, c in ones]
        best = greedy_reference.zb_auto(ranks, microbatches, limit, costs)
        found = [write_order(program, rank) for rank in range(ranks)]
        assert found == [" ".join(f"{s}{k}{m}" for k, s, m in order) for order in best.orders]


def test_any_counts_run_within_any_limit_and_no_later_than_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        ranks, microbatches = rng.randint(1, 12), rng.randint(1, 40)
        limit = rng.randint(1, 2 * ranks + 2)
        costs = random_costs(rng, ranks)
        costs.edges, costs.there, costs.back = (
            costs.edges[: ranks - 1],
            [costs.there[0] if costs.there else 0] * (ranks - 1),
            [costs.there[0] if costs.there else 0] * (ranks - 1),
        )
        times = costs.forward, costs.half, costs.weight
        if not any(map(any, times)):
            continue
        late = costs.there[0] if costs.there else 0
        line = zb_auto(microbatches, times, late, limit, (costs.made, costs.change))
        sizes = [
            (m, c) if max(m, m + c) else (1, 0)
            for m, c in zip(costs.made, costs.change, strict=True)
        ]
        made, change = [m for m, _ in sizes], [c for _, c in sizes]
        peaks = most_kept(line.program, made, change)
        for peak, size, grows in zip(peaks, made, change, strict=True):
            assert peak <= limit * max(size, size + grows)
        for name in ("zb_h1", "zb_h2"):
            hand = build_program(name, ranks, microbatches)
            kept = most_kept(hand, made, change)
            if all(k <= limit * max(m, m + c) for k, m, c in zip(kept, made, change, strict=True)):
                assert line.makespan <= simulate_timeline(hand, line.times, late).makespan
        if limit >= ranks:
            hand = build_program("1f1b", ranks, microbatches)
            assert line.makespan <= simulate_timeline(hand, line.times, late).makespan


def test_one_that_is_taken_is_that_of_the_schedule_itself() -> None:
    """Within the memory that they need, the orders by hand are those of ZB-H1, ZB-H2 and 1F1B."""
    ranks, microbatches = 4, 9
    for taken, name in enumerate(("zb_h1", "zb_h2", "1f1b")):
        found = build_program(
            "zb_auto",
            ranks,
            microbatches,
            memory_limit_activations=2 * ranks,
            costs=replace(equal_costs(ranks), taken=taken),
        )
        hand = build_program(name, ranks, microbatches)
        for rank in range(ranks):
            # A whole backward is its two halves at once.
            words = [
                half
                for word in write_order(hand, rank).split()
                for half in (
                    [word.replace("B", "I"), word.replace("B", "W")] if "B" in word else [word]
                )
            ]
            assert write_order(found, rank).split() == words


def test_passes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uneven stages and a limit that cuts everything down: all ways to count differ."""
    runs = []

    def count_and_fail(*arguments: Any) -> None:
        runs.append(arguments)
        arguments[-1][:] = NOT_RUN

    monkeypatch.setattr(weight_filling, "place_weights", count_and_fail)
    costs = OrderCosts.of(
        [(s, s + 1) for s in range(15)],
        (list(range(7, 23)), list(range(30, 14, -1)), [5] * 16),
        ([3] * 15, [4] * 15),
    )
    with pytest.raises(ValueError, match="empty"):
        zb_auto_orders(Shape(16, 40, memory_limit_activations=13, costs=costs))
    assert 50 < len(runs) * 2 / 3 <= MOST_PASSES


def test_equal_ratios_are_one_program_and_other_counts_keep_what_it_was_made_for() -> None:
    edges = [(0, 1), (1, 2)]
    small = OrderCosts.of(edges, ([3, 4, 5], [3, 3, 3], [1, 2, 1]), ([1, 1], [2, 2]), None)
    large = OrderCosts.of(
        edges, ([30, 40, 50], [30, 30, 30], [10, 20, 10]), ([10, 10], [20, 20]), ([7] * 3, [0] * 3)
    )
    assert small == large
    program = build_program("zb_auto", 3, 9, costs=small)
    assert program is build_program("zb_auto", 3, 9, costs=large)
    assert program is not build_program("zb_auto", 3, 9, costs=small, memory_limit_activations=5)
    other = with_microbatches(program, 18)
    assert other is not None
    assert other is build_program("zb_auto", 3, 18, costs=small)
    # Where an order follows from counts alone, costs make no difference.
    assert build_program("1f1b", 3, 9, costs=small) is build_program("1f1b", 3, 9)


def test_times_too_long_to_add_up_keep_their_ratios() -> None:
    times = ([10**18, 2 * 10**18], [10**18] * 2, [10**18 + 7] * 2)
    costs = OrderCosts.of([(0, 1)], times, ([0], [0]))
    assert max(costs.forward) <= 2**38
    assert Fraction(costs.forward[1], costs.forward[0]) == pytest.approx(2, rel=1e-9)
    huge = OrderCosts.of([(0, 1)], times, ([0], [0]), ([2**50, 5], [0, -2]))
    assert (huge.forward_memory, huge.input_memory) == ((1, 5), (0, -2))


def test_gains_keep_the_order() -> None:
    """The order would be another one for the new times; what a change gains is told of this one."""
    times = [4, 4, 4], [4, 4, 4], [2, 2, 2]
    line = zb_auto(6, times, 0, 6)
    gain = exact_gain(
        line, find_critical_path(line), OperationChange(0, OpKind.FORWARD, factor=8.0)
    )
    replayed = simulate_timeline(
        line.program, StageTimes.of([32, 4, 4], backward_halves=(times[1], times[2]))
    )
    assert gain.makespan == replayed.makespan
    anew = zb_auto(6, ([32, 4, 4], times[1], times[2]), 0, 6)
    assert [write_order(anew.program, r) for r in range(3)] != [
        write_order(line.program, r) for r in range(3)
    ]


def test_a_limit_below_one_activation_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        build_program("zb_auto", 2, 4, memory_limit_activations=0)
    assert [(fault.code, fault.path) for fault in refused.value.faults] == [
        (FaultCode.OUT_OF_RANGE, ("schedule", "memory_limit_activations"))
    ]
