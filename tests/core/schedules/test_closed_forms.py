"""Published formulas and tables, reproduced by simulation where they hold."""

import random
from collections.abc import Sequence

import pytest

from service.core.memory.live import ActivationDeltas, live_activations
from service.core.schedules.bubble import Bubble, measure_bubble
from service.core.schedules.build import build_program
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.closed_forms import Metric
from service.core.schedules.program import PairMode, RecomputeMode
from service.core.schedules.timeline import Timeline
from tests.core.schedules.plans import MILLISECOND, thirds, timeline
from tests.core.schedules.reference_orders import shapes_of
from validation.zero_bubble import TABLE

TRIPLES = [
    (10, 10, 10), (10, 10, 5), (10, 12, 7), (10, 20, 5), (20, 10, 5), (7, 13, 1), (10, 10, 15),
]  # fmt: skip
WITH_FORMS = [name for name, family in SCHEDULES.items() if family.closed_form is not None]


def equal(
    schedule: str,
    ranks: int,
    microbatches: int,
    times: tuple[int, int, int],
    chunks: int | None = None,
    *,
    pair: int | None = None,
    pair_mode: PairMode = PairMode.SERIAL,
    group_size: int | None = None,
) -> Timeline:
    """Equal stages of (F, I, W), as many chunks as the schedule has."""
    chunks = chunks or SCHEDULES[schedule].chunks or 1
    stages = ranks * chunks
    f, i, w = ([time] * stages for time in times)
    return timeline(
        schedule,
        microbatches,
        f,
        halves=(i, w),
        chunks=chunks,
        pair=None if pair is None else [pair] * stages,
        pair_mode=pair_mode,
        group_size=group_size,
    )


def assert_judged(bubble: Bubble) -> bool:
    """Where a form is said to hold it is exact; says whether it is."""
    ideal, fails = bubble.ideal_utilisation, bubble.closed_form_fails
    assert (ideal is None) != (fails is None)
    if ideal is None:
        return False
    found = bubble.makespan if ideal.metric is Metric.MAKESPAN else bubble.span
    assert ideal.picoseconds == found
    assert ideal.utilisation == pytest.approx(
        sum(r.busy for r in bubble.ranks) / len(bubble.ranks) / found
    )
    return True


@pytest.mark.parametrize("schedule", WITH_FORMS)
def test_every_form_is_exact_where_it_is_said_to_hold(schedule: str) -> None:
    held = failed = 0
    for ranks, microbatches, chunks, _ in shapes_of(schedule):
        for times in TRIPLES:
            for mode in PairMode if SCHEDULES[schedule].has_pairs else (PairMode.SERIAL,):
                line = equal(schedule, ranks, microbatches, times, chunks, pair_mode=mode)
                if assert_judged(measure_bubble(line)):
                    held += 1
                else:
                    failed += 1
    assert held >= 10
    assert (failed == 0) == (schedule in WITH_FORMS[:5])


@pytest.mark.parametrize("schedule", ["interleaved_1f1b", "looped_bfs"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_chunks_divide_fill_and_drain(schedule: str, ranks: int) -> None:
    for rounds in (1, 2, 4):
        for chunks in (1, 2, 4):
            line = equal(schedule, ranks, ranks * rounds, (10, 10, 10), chunks)
            assert line.makespan == (ranks * rounds * chunks + ranks - 1) * 30
            # Megatron quotes the bubble as a share of the ideal time
            overhead = measure_bubble(line).overhead_ratio
            assert overhead == pytest.approx((ranks - 1) / (chunks * ranks * rounds))


def test_fewer_microbatches_than_ranks_cost_a_round_for_each_further_chunk() -> None:
    for schedule in ("interleaved_1f1b", "looped_bfs"):
        line = equal(schedule, 8, 4, (10, 10, 10), 2)
        assert line.makespan == (4 * 2 + 7) * 30 + (2 - 1) * (8 - 4) * 30


def test_groups_larger_than_the_ranks_keep_the_form_and_more_activations() -> None:
    assert equal("interleaved_1f1b", 4, 6, (1, 1, 1), 2).makespan == 45

    def largest_peak(microbatches: int) -> int:
        live = live_activations(equal("interleaved_1f1b", 4, microbatches, (1, 1, 1), 2).program)
        return max(rank.peak_activations for rank in live)

    assert (largest_peak(6), largest_peak(8)) == (12, 11)


def test_a_legal_short_last_group_keeps_the_form() -> None:
    for group_size in (5, 7, 10):  # 14 = 5 + 5 + 4 = 7 + 7 = 10 + 4
        line = equal("interleaved_1f1b", 4, 14, (10, 10, 8), 3, group_size=group_size)
        assert assert_judged(measure_bubble(line))


@pytest.mark.parametrize(
    ("schedule", "times", "time", "published"),
    [("zb_h1", (10, 10, 15), 450, 435), ("zb_h2", (10, 10, 15), 420, 390)],
)
def test_weights_longer_than_the_rest_break_the_forms(
    schedule: str, times: tuple[int, int, int], time: int, published: int
) -> None:
    bubble = measure_bubble(equal(schedule, 4, 12, times))
    assert (bubble.makespan if schedule == "zb_h1" else bubble.span) == time
    form = SCHEDULES[schedule].closed_form
    assert form is not None
    assert bubble.ideal_utilisation is None
    assert bubble.closed_form_fails is not None
    assert bubble.closed_form_fails.formula == form.name
    assert "weight half is longer" in bubble.closed_form_fails.reason
    f, i, w = times
    assert 12 * sum(times) + 3 * (f + i - (w if schedule == "zb_h1" else 2 * w)) == published


def test_zb_h2_has_no_bubble_but_the_fill_when_all_are_equal() -> None:
    for ranks in (2, 4, 8):
        bubble = measure_bubble(equal("zb_h2", ranks, 2 * ranks, (10, 10, 10)))
        assert bubble.span == 2 * ranks * 30
        assert bubble.makespan == 2 * ranks * 30 + (ranks - 1) * 10


@pytest.mark.parametrize(
    ("ranks", "microbatches", "times", "span_excess", "makespan_excess"),
    [
        (4, 11, (10, 10, 10), 0, 30),
        (4, 11, (10, 12, 7), 30, 36),
        (4, 11, (10, 20, 5), 90, 90),
        (4, 11, (20, 10, 5), 85, 85),
        (4, 4, (1, 1, 1), 6, None),
        (8, 8, (1, 1, 1), 14, None),
    ],
)
def test_zb_v_is_free_of_bubbles_only_with_equal_thirds(
    ranks: int,
    microbatches: int,
    times: tuple[int, int, int],
    span_excess: int,
    makespan_excess: int | None,
) -> None:
    bubble = measure_bubble(equal("zb_v", ranks, microbatches, times))
    ideal = 2 * microbatches * sum(times)
    assert bubble.span - ideal == span_excess
    if makespan_excess is not None:
        assert bubble.makespan - ideal == makespan_excess
    assert (bubble.ideal_utilisation is not None) == (span_excess == 0)


@pytest.mark.parametrize(
    ("ranks", "times", "fused", "idle"),
    [
        (4, (10, 10, 5), True, 75),  # (P-1)(F&B + B - 3W)
        (4, (10, 12, 7), True, 75),  # the form says 81
        (8, (10, 12, 7), True, 179),  # the form says 189
        (4, (10, 10, 5), False, 45),  # (P-1)(F + I - W)
    ],
)
def test_dual_pipe_bubbles(
    ranks: int, times: tuple[int, int, int], *, fused: bool, idle: int
) -> None:
    mode = PairMode.FUSED if fused else PairMode.SERIAL
    for schedule, on_ranks, work in (("dualpipe_v", ranks, 2), ("dualpipe", 2 * ranks, 1)):
        for rounds in (2, 3):
            microbatches = rounds * on_ranks
            line = equal(schedule, on_ranks, microbatches, times, pair_mode=mode)
            bubble = measure_bubble(line)
            assert bubble.makespan - microbatches * work * sum(times) == idle
            assert (bubble.ideal_utilisation is not None) == (times[0] == times[1])


def test_pairs_that_overlap_leave_ranks_unequally_busy() -> None:
    """F&B = max(F, B): the form is the idle time of the rank that is least busy."""
    line = equal("dualpipe_v", 4, 16, (10, 10, 10), pair=20, pair_mode=PairMode.FUSED)
    bubble = measure_bubble(line)
    idle = [bubble.makespan - rank.busy for rank in bubble.ranks]
    assert max(idle) == 3 * (20 + 20 - 3 * 10) == 30
    assert min(idle) == 10
    assert bubble.closed_form_fails is not None
    assert "not equally busy" in bubble.closed_form_fails.reason


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_chimera(ranks: int) -> None:
    """(D-2)/(2N+D-2) of the time when B = F, (D-2)/(3N/2+D-2) when B = 2F."""
    for backward, share in (
        (10, (ranks - 2) / (2 * ranks + ranks - 2)),
        (20, (ranks - 2) / (3 * ranks / 2 + ranks - 2)),
    ):
        bubble = measure_bubble(equal("chimera", ranks, ranks, (10, backward, 0)))
        assert bubble.idle_fraction == pytest.approx(share)
    for blocks in (2, 3):
        bubble = measure_bubble(equal("chimera", ranks, blocks * ranks, (10, 10, 0)))
        assert bubble.makespan == blocks * (2 * ranks + ranks - 2) * 10
    live = live_activations(equal("chimera", ranks, ranks, (1, 1, 1)).program)
    peaks = [rank.peak_activations for rank in live]
    assert (min(peaks), max(peaks)) == (ranks // 2 + 1 if ranks > 2 else 2, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_published_peaks(ranks: int) -> None:
    def peaks(schedule: str, microbatches: int, chunks: int, *, freed_by: str) -> list[int]:
        program = build_program(schedule, ranks, microbatches, chunks_per_rank=chunks)
        ones, zeros = (1,) * program.stages, (0,) * program.stages
        freed = tuple(-one for one in ones)
        halves = (freed, zeros) if freed_by == "I" else (zeros, freed)
        live = live_activations(program, ActivationDeltas.of(ones, *halves))
        return [rank.peak_activations for rank in live]

    each = range(ranks)
    many = 4 * ranks
    for chunks in (1, 2, 4):
        expected = [2 * (ranks - 1 - r) + (chunks - 1) * ranks + 1 for r in each]
        assert peaks("interleaved_1f1b", many, chunks, freed_by="W") == expected
        assert expected[0] == (chunks + 1) * ranks - 1
        assert peaks("looped_bfs", many, chunks, freed_by="W") == [many * chunks] * ranks
        name = "interleaved_zero_bubble"
        assert peaks(name, many, chunks, freed_by="W") == [chunks * ranks] * ranks
        assert peaks(name, many, chunks, freed_by="I") == [chunks * ranks - r for r in each]
    assert peaks("zb_h1", many, 1, freed_by="W") == [ranks] * ranks
    assert peaks("zb_h2", many, 1, freed_by="W") == [2 * ranks - 1] * ranks
    assert peaks("zb_h2", many, 1, freed_by="I") == [2 * (ranks - 1 - r) + 1 for r in each]
    assert peaks("zb_v", many, 2, freed_by="W") == [2 * ranks] * ranks
    assert peaks("dualpipe_v", many, 2, freed_by="W") == [2 * ranks + 1] * ranks
    if ranks % 2 == 0:
        assert peaks("dualpipe", many, 1, freed_by="W") == [ranks + 1] * ranks


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8])
def test_latency_beyond_the_forms(ranks: int) -> None:
    """Extra time of a hop latency c, everything else equal."""

    def extra(schedule: str, microbatches: int, chunks: int, c: int, ticks: Sequence[int]) -> int:
        stages = ranks * chunks
        f, i, w = ([t] * stages for t in ticks)
        lines = [
            timeline(schedule, microbatches, f, latency=latency, chunks=chunks, halves=(i, w))
            for latency in (0, c)
        ]
        return lines[1].makespan - lines[0].makespan

    thirds_of = (100, 100, 100)
    for chunks in (1, 2, 4):
        for rounds in (2, 4):
            m = ranks * rounds
            hops = 2 * (chunks * ranks - 1)
            assert extra("looped_bfs", m, chunks, 1, thirds_of) == 2 * (ranks - 1)
            if chunks > 1:
                for c in (1, 50, 100):
                    assert extra("interleaved_1f1b", m, chunks, c, (100, 100, 100)) == hops * c
            zero_bubble = 4 * (ranks - 1) + ranks * (chunks - 1)
            assert extra("interleaved_zero_bubble", m, chunks, 1, thirds_of) == zero_bubble
        assert extra("looped_bfs", ranks, chunks, 1, thirds_of) == 2 * (chunks * ranks - 1)


def test_interleaved_zero_bubble_on_the_first_row_of_the_table() -> None:
    """Of the Zero Bubble paper (arXiv 2401.10241), which is held in `validation`; times in us."""
    case = TABLE[0][0]
    ranks, microbatches, latency = case.ranks, case.microbatches, case.latency
    times = case.forward, case.backward_input, case.backward_weight
    f, i, w = ([round(time / 3)] * 3 * ranks for time in times)
    line = timeline("interleaved_1f1b", microbatches, f, latency=latency, chunks=3, halves=(i, w))
    assert f"{measure_bubble(line).idle_fraction:.4f}" == "0.1090"


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
    assert ideal.picoseconds == line.makespan == (6 + 3 - 1) * 7
