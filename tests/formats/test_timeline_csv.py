"""Timelines as comma-separated values."""

import csv
import io
import random
from fractions import Fraction

from service.core.schedules.bubble import measure_bubble
from service.core.schedules.program import PairMode, RecomputeMode
from service.core.schedules.selection import Selection
from service.formats.timeline_csv import timeline_csv
from tests.core.schedules.plans import MILLISECOND, timeline
from tests.core.schedules.random_cases import random_cases


def test_every_operation_with_what_it_waited_for() -> None:
    line = timeline(
        "1f1b", 2, [2 * MILLISECOND, 3 * MILLISECOND], [4 * MILLISECOND, 5 * MILLISECOND], 10**9
    )
    assert timeline_csv(line) == (
        "rank,kind,stage,microbatch,start_seconds,end_seconds,binding,"
        "backward_stage,backward_microbatch,"
        "dependency_wait_seconds,contention_wait_seconds,transfer_wait_seconds,"
        "exchange_wait_seconds\n"
        "0,forward,0,0,0,0.002,start,,,0,0,0,0\n"
        "0,forward,0,1,0.002,0.004,rank,,,0,0,0,0\n"
        "0,backward,0,0,0.012,0.016,1B0,,,0.007,0,0.001,0\n"
        "0,backward,0,1,0.02,0.024,1B1,,,0.003,0,0.001,0\n"
        "1,forward,1,0,0.003,0.006,0F0,,,0,0,0,0\n"
        "1,backward,1,0,0.006,0.011,rank,,,0,0,0,0\n"
        "1,forward,1,1,0.011,0.014,rank,,,0,0,0,0\n"
        "1,backward,1,1,0.014,0.019,rank,,,0,0,0,0\n"
    )


def test_numbers_are_exact_and_recompute_has_its_name() -> None:
    line = timeline(
        "gpipe", 3, [1, 7], [10**12 + 1, 3], recompute=[5, 5], mode=RecomputeMode.AFTER_GRADIENT
    )
    rows = list(csv.DictReader(io.StringIO(timeline_csv(line))))
    assert [Fraction(row["end_seconds"]) * 10**12 for row in rows] == line.run.end.tolist()
    assert {row["kind"] for row in rows} == {"forward", "recompute", "backward"}


def test_waits_are_those_of_the_ranks(seed: int) -> None:
    for _, line in random_cases(random.Random(seed), 20, unit=10):
        rows = list(csv.DictReader(io.StringIO(timeline_csv(line))))
        found = {
            cause: [
                round(
                    sum(
                        Fraction(row[f"{cause}_wait_seconds"])
                        for row in rows
                        if int(row["rank"]) == rank
                    )
                    * 10**12
                )
                for rank in range(line.program.ranks)
            ]
            for cause in ("dependency", "contention", "transfer")
        }
        ranks = measure_bubble(line).ranks
        assert found["dependency"] == [rank.dependency_wait for rank in ranks]
        assert found["contention"] == [rank.contention_wait for rank in ranks]
        assert found["transfer"] == [rank.transfer_wait for rank in ranks]


def test_filters() -> None:
    line = timeline("1f1b", 2, [2, 3], [4, 5], 1)
    rows = list(
        csv.DictReader(io.StringIO(timeline_csv(line, Selection(ranks=frozenset({1}), start=11))))
    )
    assert [(row["kind"], row["microbatch"]) for row in rows] == [
        ("forward", "1"),
        ("backward", "1"),
    ]
    assert timeline_csv(line, Selection(ranks=frozenset())).count("\n") == 1


def test_a_fused_pair_names_its_backward_too() -> None:
    line = timeline(
        "dualpipe_v",
        4,
        [1] * 4,
        halves=([1] * 4, [1] * 4),
        chunks=2,
        pair_mode=PairMode.FUSED,
    )
    rows = list(csv.DictReader(io.StringIO(timeline_csv(line))))
    pairs = [row for row in rows if row["kind"] == "forward_backward"]
    assert (pairs[0]["stage"], pairs[0]["microbatch"]) == ("0", "3")
    assert (pairs[0]["backward_stage"], pairs[0]["backward_microbatch"]) == ("3", "1")
    assert {row["backward_stage"] for row in rows if row not in pairs} == {""}
    assert any("&" in row["binding"] for row in rows)
