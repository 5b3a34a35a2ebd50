"""Idle time: per rank it sums to the makespan, by cause it sums to the excess."""

import random
from fractions import Fraction

import pytest

from service.core.errors import InvalidInput
from service.core.schedules.bubble import Excess, measure_bubble
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import RecomputeMode
from tests.core.schedules.event_simulator import random_legal_plan, random_plan
from tests.core.schedules.plans import (
    named_program,
    plan_program,
    plan_timeline,
    thirds,
    timeline,
)


def test_sums_are_exact_on_random_plans(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        schedule = rng.choice([*SCHEDULES, ""])
        plan = random_plan(rng, schedule) if schedule else random_legal_plan(rng)
        program = named_program(plan, schedule) if schedule else plan_program(plan)
        line = plan_timeline(plan, program)
        if line is None:
            continue
        bubble = measure_bubble(line)
        for rank in bubble.ranks:
            parts = (rank.busy, rank.fill, rank.drain, rank.dependency_wait, rank.transfer_wait)
            assert min(parts) >= 0
            assert sum(parts) + rank.send + rank.contention_wait == bubble.makespan
            assert rank.utilisation == rank.busy / bubble.makespan
        assert bubble.excess.total == bubble.makespan - bubble.ideal
        assert bubble.span <= bubble.makespan
        assert 0 <= bubble.span_idle_fraction <= bubble.idle_fraction < 1
        assert bubble.overhead_ratio >= 0


def test_a_slow_hop_is_transfer_and_a_slow_stage_is_imbalance() -> None:
    """18/18/25/18 ms, 16 microbatches, 4 ms a hop: the transfer is taken away first."""
    excess = measure_bubble(timeline("1f1b", 16, *thirds([18, 18, 25, 18]), 4 * 3)).excess
    assert excess.transfer == 3 * 42
    assert excess.imbalance == 3 * Fraction("71.75")
    assert excess.contention == 0
    assert excess.structural == 3 * Fraction("59.25")  # 3 x the mean stage's 19.75


def test_each_cause_alone_lands_in_its_own_term() -> None:
    even = measure_bubble(timeline("1f1b", 16, [6] * 4, [12] * 4)).excess
    assert even == Excess(Fraction(0), Fraction(0), Fraction(0), Fraction(3 * 18))

    slow_hop = measure_bubble(timeline("1f1b", 16, [6] * 4, [12] * 4, 5)).excess
    assert slow_hop.transfer == 5 * 2 * (3 * 4 + 2)
    assert slow_hop.imbalance == 0
    assert slow_hop.structural == even.structural

    slow_stage = measure_bubble(timeline("1f1b", 16, [6, 6, 9, 6], [12, 12, 16, 12])).excess
    assert slow_stage.transfer == 0
    assert slow_stage.imbalance > 0
    assert slow_stage.structural == 3 * (Fraction(27, 4) + 13)


def test_imbalance_may_save_time() -> None:
    """Terms are signed: 1F1B takes 7 here and 7.5 with both stages at their mean."""
    excess = measure_bubble(timeline("1f1b", 2, [1, 1], [2, 1])).excess
    assert excess.imbalance == Fraction(-1, 2)
    assert excess.structural == Fraction(5, 2)
    assert excess.total == 7 - 5


def test_gaps_are_split_by_the_latency_of_what_was_waited_for() -> None:
    bubble = measure_bubble(timeline("1f1b", 2, [2, 3], [4, 5], latency=1))
    first, last = bubble.ranks
    # rank 0 ends F1 at 4 and starts B0 at 12, ends it at 16 and starts B1 at 20
    assert (first.fill, first.drain, first.busy) == (0, 0, 12)
    assert (first.transfer_wait, first.dependency_wait) == (2, 10)
    assert (last.fill, last.drain, last.busy) == (3, 5, 16)
    assert (last.transfer_wait, last.dependency_wait) == (0, 0)
    assert bubble.makespan == bubble.span == 24
    assert bubble.ideal == 14
    assert bubble.idle_fraction == 1 - 28 / 48
    assert bubble.overhead_ratio == pytest.approx(10 / 14)


def test_span_is_a_ranks_own_time() -> None:
    bubble = measure_bubble(timeline("forward_only", 4, [5, 5, 5]))
    assert (bubble.makespan, bubble.span) == (30, 20)
    assert bubble.span_idle_fraction == 0


def test_recompute_is_work() -> None:
    line = timeline(
        "gpipe", 4, [2, 2], [4, 4], recompute=[2, 2], mode=RecomputeMode.BEFORE_GRADIENT
    )
    bubble = measure_bubble(line)
    assert bubble.ideal == 4 * 8
    assert [rank.busy for rank in bubble.ranks] == [32, 32]


def test_means_too_large_to_sum_are_refused() -> None:
    # No chain of operations passes the limit, but the stages together do.
    line = timeline("forward_only", 1, [2**59 + s for s in range(7)])
    bubble = measure_bubble(line)
    assert bubble.excess.total == bubble.makespan - bubble.ideal
    with pytest.raises(InvalidInput, match="53 days"):
        timeline("forward_only", 1, [2**59] * 9)
