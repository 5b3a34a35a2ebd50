"""What other microbatch counts would do."""

from fractions import Fraction

import pytest

from service.core.schedules.build import build_program
from service.core.schedules.effects import effects_of_microbatches
from service.core.schedules.stage_times import StageTimes
from tests.core.schedules.plans import (
    simulate_timeline,
    thirds,
    timeline,
)


def test_half_same_and_twice() -> None:
    effects = effects_of_microbatches(timeline("1f1b", 16, *thirds([18, 18, 25, 18])))
    assert [e.microbatches for e in effects] == [8, 16, 32]
    assert [e.makespan for e in effects] == [3 * 247, 3 * 447, 3 * 847]
    assert [e.per_microbatch for e in effects] == [
        Fraction(3 * m, n) for m, n in ((247, 8), (447, 16), (847, 32))
    ]
    assert [f"{e.idle_fraction:.4f}" for e in effects] == ["0.3603", "0.2931", "0.2538"]


def test_transfers_are_kept() -> None:
    effects = effects_of_microbatches(timeline("gpipe", 2, [10] * 2, [20] * 2, 7))
    assert [e.makespan for e in effects] == [60 + 14, 90 + 14, 150 + 14]


def test_one_microbatch_has_no_half() -> None:
    effects = effects_of_microbatches(timeline("1f1b", 1, [1], [1]))
    assert [e.microbatches for e in effects] == [1, 2]


def test_twice_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.core.schedules.build.MAX_OPERATIONS", 100)
    within = effects_of_microbatches(timeline("1f1b", 25, [1], [1]))
    assert [e.microbatches for e in within] == [12, 25, 50]
    beyond = effects_of_microbatches(timeline("1f1b", 26, [1], [1]))
    assert [e.microbatches for e in beyond] == [13, 26]
    # forwards and transfers: 3 for each microbatch on two ranks
    within = effects_of_microbatches(timeline("forward_only", 16, [1, 1]))
    assert [e.microbatches for e in within] == [8, 16, 32]
    beyond = effects_of_microbatches(timeline("forward_only", 17, [1, 1]))
    assert [e.microbatches for e in beyond] == [8, 17]


def test_counts_that_the_schedule_refuses_are_left_out() -> None:
    line = timeline("dualpipe_v", 8, [1] * 8, halves=([1] * 8, [1] * 8), chunks=2)
    assert [e.microbatches for e in effects_of_microbatches(line)] == [8, 16]
    order = ("0F0 0F1 0B0 0B1",)
    written = simulate_timeline(build_program("explicit", 1, 2, order=order), StageTimes.of([1]))
    assert [e.microbatches for e in effects_of_microbatches(written)] == [2]


def test_a_count_whose_times_are_too_long_is_left_out() -> None:
    """Two stages of 1e5 s fit for 16 microbatches and not for 32."""
    stage = 10**5 * 10**12
    effects = effects_of_microbatches(timeline("1f1b", 16, [stage] * 2, [stage] * 2))
    assert [e.microbatches for e in effects] == [8, 16]
