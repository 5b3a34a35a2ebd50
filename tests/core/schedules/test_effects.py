"""What other microbatch counts would do."""

from fractions import Fraction

import pytest

from service.core.schedules.effects import effects_of_microbatches
from tests.core.schedules.plans import thirds, timeline


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
    for module in ("effects", "build"):
        monkeypatch.setattr(f"service.core.schedules.{module}.MAX_OPERATIONS", 100)
    within = effects_of_microbatches(timeline("1f1b", 25, [1], [1]))
    assert [e.microbatches for e in within] == [12, 25, 50]
    beyond = effects_of_microbatches(timeline("1f1b", 26, [1], [1]))
    assert [e.microbatches for e in beyond] == [13, 26]
    # forwards and transfers: 3 for each microbatch on two ranks
    within = effects_of_microbatches(timeline("forward_only", 16, [1, 1]))
    assert [e.microbatches for e in within] == [8, 16, 32]
    beyond = effects_of_microbatches(timeline("forward_only", 17, [1, 1]))
    assert [e.microbatches for e in beyond] == [8, 17]
