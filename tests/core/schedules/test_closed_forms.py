"""Published formulas and tables, reproduced by simulation where they hold."""

import random

import pytest

from service.core.schedules.bubble import measure_bubble
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import RecomputeMode
from tests.core.schedules.plans import MILLISECOND, thirds, timeline

PAIRS = [(10, 20), (10, 10), (20, 10), (7, 13), (1, 1), (3, 17), (10, 35)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 7, 8, 16, 32])
def test_equal_stages_without_transfers(ranks: int, microbatches: int) -> None:
    slots = microbatches + ranks - 1
    for forward, backward in PAIRS:
        for schedule, family in SCHEDULES.items():
            work = forward + backward * family.has_backward
            line = timeline(schedule, microbatches, [forward] * ranks, [backward] * ranks)
            assert line.makespan == slots * work
            ideal = measure_bubble(line).ideal_utilisation
            assert ideal is not None
            assert ideal.makespan == line.makespan
            assert ideal.utilisation == microbatches / slots


def test_forward_only_on_four_ranks_in_slots() -> None:
    for microbatches, slots in ((4, 7), (8, 11), (16, 19)):
        line = timeline("forward_only", microbatches, [1] * 4)
        assert line.makespan == slots
        assert {r.utilisation for r in measure_bubble(line).ranks} == {microbatches / slots}


@pytest.mark.parametrize("latency", [0, 1, 5, 10, 100])
def test_gpipe_pays_each_hop_twice(latency: int) -> None:
    for ranks in (2, 3, 4, 8):
        for microbatches in (1, 4, 9):
            line = timeline("gpipe", microbatches, [10] * ranks, [20] * ranks, latency)
            assert line.makespan == (microbatches + ranks - 1) * 30 + 2 * (ranks - 1) * latency


@pytest.mark.parametrize("latency", [0, 1, 5, 10, 100])
def test_1f1b_pays_hops_for_every_microbatch(latency: int) -> None:
    for ranks in (2, 3, 4, 8, 16):
        for rounds in (1, 2, 3, 8):
            microbatches = ranks * rounds
            line = timeline("1f1b", microbatches, [10] * ranks, [20] * ranks, latency)
            hops = 2 * ((ranks - 1) * rounds + ranks - 2)
            assert line.makespan == (microbatches + ranks - 1) * 30 + hops * latency


def test_1f1b_latency_where_ranks_do_not_divide_microbatches() -> None:
    assert timeline("1f1b", 33, [10] * 2, [20] * 2, 1).makespan == 34 * 30 + 34


def test_gpipe_with_unequal_stages_is_a_flow_shop(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        ranks, microbatches = rng.randint(1, 8), rng.randint(1, 20)
        f = [rng.randint(1, 60) for _ in range(ranks)]
        b = [rng.randint(1, 60) for _ in range(ranks)]
        expected = sum(f) + (microbatches - 1) * max(f) + sum(b) + (microbatches - 1) * max(b)
        assert timeline("gpipe", microbatches, f, b).makespan == expected


@pytest.mark.parametrize(
    ("ranks", "microbatches", "f", "i", "w", "latency", "bubble"),
    [
        (8, 24, 18522, 18086, 9337, 601, ".2431"),
        (8, 64, 18546, 18097, 9321, 762, ".1240"),
        (8, 32, 29802, 29428, 19530, 577, ".1898"),
        (16, 48, 11347, 11248, 8132, 377, ".2552"),
        (16, 128, 11325, 11308, 8109, 378, ".1251"),
        (32, 128, 10408, 10204, 7703, 408, ".2168"),
    ],
)
def test_1f1b_column_of_the_zero_bubble_table(
    ranks: int, microbatches: int, f: int, i: int, w: int, latency: int, bubble: str
) -> None:
    """Zero Bubble Pipeline Parallelism (arXiv 2401.10241): bubble rate of 1F1B, times in us."""
    line = timeline("1f1b", microbatches, [f] * ranks, [i + w] * ranks, latency)
    rate = (line.makespan - microbatches * (f + i + w)) / line.makespan
    assert f"{rate:.4f}".removeprefix("0") == bubble
    assert measure_bubble(line).idle_fraction == pytest.approx(rate)


@pytest.mark.parametrize(
    ("cadences", "makespans", "idle"),
    [
        ([18, 18, 25, 18], [247, 447, 847], [".3603", ".2931", ".2538"]),
        ([18, 21, 20, 18], [220, 388, 724], [".3000", ".2062", ".1492"]),
    ],
)
def test_before_and_after_moving_one_block(
    cadences: list[int], makespans: list[int], idle: list[str]
) -> None:
    lines = [
        timeline("1f1b", microbatches, *thirds(cadences, 3 * MILLISECOND))
        for microbatches in (8, 16, 32)
    ]
    assert [line.makespan for line in lines] == [m * 3 * MILLISECOND for m in makespans]
    shares = [f"{measure_bubble(line).idle_fraction:.4f}".removeprefix("0") for line in lines]
    assert shares == idle


def test_closed_form_is_absent_where_it_does_not_hold() -> None:
    def has_one(**changes: object) -> bool:
        given = {"forward": [2, 2], "backward": [3, 3], "latency": 0} | changes
        return measure_bubble(timeline("1f1b", 4, **given)).ideal_utilisation is not None  # type: ignore[arg-type]

    after, before = RecomputeMode.AFTER_GRADIENT, RecomputeMode.BEFORE_GRADIENT
    assert has_one()
    assert has_one(recompute=[1, 1], mode=after)
    assert has_one(recompute=[0, 0], mode=before)
    assert has_one(recompute=[0, 9])  # not run
    assert not has_one(recompute=[1, 1], mode=before)
    assert not has_one(forward=[2, 3])
    assert not has_one(latency=1)


def test_closed_form_includes_recompute() -> None:
    line = timeline(
        "1f1b", 6, [2] * 3, [3] * 3, recompute=[2] * 3, mode=RecomputeMode.AFTER_GRADIENT
    )
    ideal = measure_bubble(line).ideal_utilisation
    assert ideal is not None
    assert ideal.makespan == line.makespan == (6 + 3 - 1) * 7
