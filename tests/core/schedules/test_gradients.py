"""When gradients are complete: after the last operation that adds to them."""

from itertools import pairwise

import numpy as np
import pytest

from service.core.schedules.build import build_program
from service.core.schedules.gradients import stage_gradients
from service.core.schedules.program import OpKind, PairMode
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline, simulate_transfers
from service.core.schedules.transfers import TransferMode, Transfers


def timeline(kind: str, ranks: int, stages: int, microbatches: int) -> Timeline:
    """Forward 3, backward 5 = 2 + 3, without transfers."""
    program = build_program(
        kind,
        ranks,
        microbatches,
        chunks_per_rank=stages // ranks,
        pair_mode=PairMode.FUSED if kind.startswith("dualpipe") else PairMode.SERIAL,
    )
    times = StageTimes.of(
        [3] * stages,
        backward_halves=([2] * stages, [3] * stages),
        forward_backward=[7] * stages,
    )
    none = np.zeros((len(program.stage_edges), 1), dtype=np.int64)
    return simulate_transfers(program, times, Transfers(TransferMode.LATENCY, none, none))


@pytest.mark.parametrize(
    ("kind", "ranks", "stages", "microbatches"),
    [
        ("gpipe", 3, 3, 4),
        ("1f1b", 4, 4, 6),
        ("interleaved_1f1b", 2, 4, 4),
        ("zb_h1", 4, 4, 8),
        ("zb_v", 2, 4, 6),
        ("dualpipe", 4, 4, 8),
        ("dualpipe_v", 2, 4, 6),
        ("chimera", 4, 4, 4),
    ],
)
def test_they_are_complete_when_every_operation_for_them_has_ended(
    kind: str, ranks: int, stages: int, microbatches: int
) -> None:
    made = timeline(kind, ranks, stages, microbatches)
    program, run = made.program, made.run
    gives = {OpKind.BACKWARD, OpKind.BACKWARD_WEIGHT, OpKind.FORWARD_BACKWARD}
    ends: dict[tuple[int, int], int] = {}
    for operation in range(program.operations):
        if OpKind(program.kind[operation]) in gives:
            place = int(program.backward_stage[operation]), int(program.rank[operation])
            ends[place] = max(ends.get(place, 0), int(run.end[operation]))
    found = stage_gradients(made)
    assert {(one.stage, one.rank): one.complete for one in found} == ends
    assert all(one.last_start < one.complete for one in found)
    assert len(found) == program.stages * program.directions
    assert max(one.complete for one in found) <= made.makespan


def test_a_schedule_without_backward_has_none() -> None:
    assert stage_gradients(timeline("forward_only", 2, 2, 3)) == ()


def test_each_rank_of_1f1b_ends_a_backward_after_the_next() -> None:
    """Stage s of three: the last microbatch's gradient comes back stage by stage."""
    found = stage_gradients(timeline("1f1b", 3, 3, 4))
    complete = [one.complete for one in found]
    assert [first - then for first, then in pairwise(complete)] == [5, 5]
    assert [one.last_microbatch for one in found] == [3, 3, 3]
