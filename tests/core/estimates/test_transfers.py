"""Exposed and hidden transfer time against the definition, operation by operation."""

import random

import numpy as np

from service.core.estimates.transfers import transfer_exposure
from service.core.plans.plan import GivenStage
from service.core.schedules.build import build_program
from service.core.schedules.program import OpKind, StageEdge
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from service.core.units import to_picoseconds
from tests.core.estimates.made_plans import given_plan, simulated
from tests.core.schedules.plans import simulate_timeline


def exposure_by_definition(timeline: Timeline) -> dict[tuple[StageEdge, bool], int]:
    """How much earlier each consumer would start without the one transfer it waited for."""
    program, run = timeline.program, timeline.run
    exposed: dict[tuple[StageEdge, bool], int] = {}
    for operation in range(program.operations):
        rank = int(program.rank[operation])
        first = operation == program.rank_offsets[rank]
        inputs = range(program.input_offsets[operation], program.input_offsets[operation + 1])
        for i in inputs:
            edge = program.stage_edges[program.input_edges[i]]
            key = (edge, bool(program.kind[operation] == OpKind.FORWARD))
            exposed.setdefault(key, 0)
            if i != run.binding[operation]:
                continue
            others = [
                int(run.end[program.inputs[j]]) + (0 if j == i else int(timeline.latencies[j]))
                for j in inputs
            ]
            earliest = max([0 if first else int(run.end[operation - 1]), *others])
            exposed[key] += int(run.start[operation]) - earliest
    return exposed


def test_a_hand_checked_pipeline() -> None:
    """Two stages of 1 s and a transfer of 2 s, two microbatches, forwards only.

    Stage 1 starts at 3 s, 2 s after stage 0 ended: all exposed. The second transfer starts at 2 s
    and is there at 4 s, just when stage 1 is free: hidden.
    """
    stages = [GivenStage(forward_seconds=1.0, transfer_seconds=2.0), GivenStage(1.0)]
    plan = given_plan(stages, microbatches=2, schedule="forward_only")
    (exposure,) = transfer_exposure(simulated(plan).timeline)
    assert exposure.messages == 2
    assert exposure.total_picoseconds == to_picoseconds(4.0)
    assert exposure.exposed_picoseconds == to_picoseconds(2.0)
    assert exposure.hidden_picoseconds == to_picoseconds(2.0)


def test_agrees_with_the_definition_on_random_plans(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        ranks = rng.randint(1, 5)
        edges = {StageEdge(s, s + 1) for s in range(ranks - 1)}
        for _ in range(rng.randint(0, 2)):
            if ranks >= 2:
                source, target = sorted(rng.sample(range(ranks), 2))
                edges.add(StageEdge(source, target))
        ordered = tuple(sorted(edges))
        program = build_program(
            rng.choice(["forward_only", "gpipe", "1f1b"]),
            ranks,
            rng.randint(1, 6),
            stage_edges=ordered,
        )
        times = StageTimes.of(
            [rng.randint(1, 9) for _ in range(ranks)], [rng.randint(1, 9) for _ in range(ranks)]
        )
        latencies = np.array([rng.randint(0, 6) for _ in ordered], dtype=np.int64)
        timeline = simulate_timeline(program, times, latencies)
        found = {
            (exposure.edge, exposure.forward): exposure for exposure in transfer_exposure(timeline)
        }
        wanted = exposure_by_definition(timeline)
        assert {key: e.exposed_picoseconds for key, e in found.items()} == wanted
        for exposure in found.values():
            assert 0 <= exposure.exposed_picoseconds <= exposure.total_picoseconds


def test_boundaries_keep_apart_where_every_stage_feeds_every_later_one() -> None:
    stages = 40
    edges = tuple(StageEdge(s, t) for s in range(stages) for t in range(s + 1, stages))
    program = build_program("1f1b", stages, 3, stage_edges=edges)
    timeline = simulate_timeline(program, StageTimes.of([1] * stages, [2] * stages), 1)
    found = transfer_exposure(timeline)
    assert [exposure.edge for exposure in found[::2]] == list(edges)
    assert all(exposure.messages == exposure.total_picoseconds == 3 for exposure in found)


def test_free_transfers_are_never_exposed() -> None:
    plan = given_plan([GivenStage(1.0, 2.0), GivenStage(3.0, 1.0), GivenStage(1.0, 1.0)])
    assert all(
        exposure.exposed_picoseconds == exposure.total_picoseconds == 0
        for exposure in transfer_exposure(simulated(plan).timeline)
    )
