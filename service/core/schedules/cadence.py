"""The pace of a plan: what each stage does for a microbatch, and how fast the order can repeat."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.schedules.build import MAX_OPERATIONS, build_program, program_work
from service.core.schedules.catalogue import schedule_family
from service.core.schedules.cycle_ratio import maximum_cycle_ratio
from service.core.schedules.periodic import periodic_graph
from service.core.schedules.program import OpKind, Program, StageEdge
from service.core.schedules.stage_times import StageTimes, operation_kinds
from service.core.schedules.timeline import Timeline

__all__ = [
    "Cadence",
    "CycleStep",
    "PhaseCadence",
    "StageCadence",
    "SteadyState",
    "measure_cadence",
]


@dataclass(frozen=True, slots=True)
class StageCadence:
    """What one stage does for one microbatch, in picoseconds; zero where the schedule has none."""

    stage: int
    rank: int
    forward: int
    backward: int
    recompute: int
    work: int


@dataclass(frozen=True, slots=True)
class CycleStep:
    """One operation of a cycle, and the transfer that leads to the next one, if any."""

    stage: int
    kind: OpKind
    duration: int  # ps
    edge: StageEdge | None
    latency: int  # ps
    microbatches: int  # how many microbatches later the next step's operation is


@dataclass(frozen=True, slots=True)
class PhaseCadence:
    """The pace of one phase and the cycle that sets it: no cycle of waiting is slower.

    `per_microbatch` = the cycle's durations and latencies / the microbatches that pass in it.
    """

    kinds: tuple[OpKind, ...]
    per_microbatch: Fraction  # ps
    cycle: tuple[CycleStep, ...]


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Phases run one after the other, so their times per microbatch add up."""

    phases: tuple[PhaseCadence, ...]

    @property
    def per_microbatch(self) -> Fraction:
        """What one more microbatch costs in a long iteration, ps, averaged over a period."""
        return sum((phase.per_microbatch for phase in self.phases), Fraction(0))


@dataclass(frozen=True, slots=True)
class Cadence:
    """`bound` is the work of the busiest rank for one microbatch (ps): no order repeats faster.

    `slowest_stage` has the most work (the first of equals). `steady` is absent for a schedule of
    several phases when some stage's output does not lead to the last stage (the slowest stages of
    the phases then need not follow one another), and for more than some hundreds of ranks.
    """

    stages: tuple[StageCadence, ...]
    slowest_stage: int
    bound: int
    steady: SteadyState | None


def measure_cadence(timeline: Timeline) -> Cadence:
    """Work per stage, and the exact pace of the steady state as a maximum cycle ratio.

    The pace is a property of the order as the iteration grows; a plan of few microbatches may end
    before it is reached.
    """
    program, times = timeline.program, timeline.times
    work = timeline.stage_work
    stage_ranks = timeline.stage_ranks
    kinds = operation_kinds(program)

    def per_stage(kind: OpKind) -> list[int]:
        run = times.of_kind(kind).tolist() if kind in kinds else [0] * program.stages
        return [int(picoseconds) for picoseconds in run]

    rank_work = np.zeros(program.ranks, dtype=np.int64)
    np.add.at(rank_work, stage_ranks, work)
    columns = zip(
        stage_ranks.tolist(),
        per_stage(OpKind.FORWARD),
        per_stage(OpKind.BACKWARD),
        per_stage(OpKind.RECOMPUTE),
        work.tolist(),
        strict=True,
    )
    return Cadence(
        stages=tuple(StageCadence(stage, *column) for stage, column in enumerate(columns)),
        slowest_stage=int(work.argmax()),
        bound=int(rank_work.max()),
        steady=_steady_state(timeline),
    )


def _steady_state(timeline: Timeline) -> SteadyState | None:
    family = schedule_family(timeline.program.schedule)
    if len(family.phases) > 1 and not _all_lead_to_the_last(timeline.program):
        return None
    period = family.period(timeline.program.ranks, timeline.program.chunks_per_rank)
    long_program = _long_program(timeline.program, period)
    if long_program is None:
        return None
    latencies = _latencies(timeline)
    return SteadyState(
        tuple(
            _phase_cadence(long_program, phase, period, timeline.times, latencies)
            for phase in family.phases
        )
    )


def _all_lead_to_the_last(program: Program) -> bool:
    """Edges go up, so it is enough that every stage but the last has one."""
    return {edge.source for edge in program.stage_edges} >= set(range(program.stages - 1))


def _long_program(program: Program, period: int) -> Program | None:
    """The same order with so many microbatches that its middle is steady; None beyond the budget.

    Warm-up and cool-down take at most about a microbatch a stage each.
    """
    microbatches = period * (2 * -(-program.stages // period) + 3)
    work = program_work(
        program.schedule,
        program.ranks,
        microbatches,
        chunks_per_rank=program.chunks_per_rank,
        recompute=program.recompute,
        stage_edges=program.stage_edges,
    )
    if work > MAX_OPERATIONS:
        return None
    return build_program(
        program.schedule,
        program.ranks,
        microbatches,
        chunks_per_rank=program.chunks_per_rank,
        recompute=program.recompute,
        stage_edges=program.stage_edges,
    )


def _latencies(timeline: Timeline) -> dict[tuple[int, bool], int]:
    forward, backward = timeline.forward_latencies.tolist(), timeline.backward_latencies.tolist()
    latencies = {(edge, False): latency for edge, latency in enumerate(forward)}
    latencies |= {(edge, True): latency for edge, latency in enumerate(backward)}
    return latencies


def _phase_cadence(
    long_program: Program,
    phase: AbstractSet[OpKind],
    period: int,
    times: StageTimes,
    latencies: dict[tuple[int, bool], int],
) -> PhaseCadence:
    graph = periodic_graph(long_program, phase, period, times, latencies)
    slowest = maximum_cycle_ratio(len(graph.nodes), graph.arcs)
    cycle = []
    for i in slowest.cycle:
        arc, edge = graph.arcs[i], graph.edges[i]
        tail, head = graph.nodes[arc.tail], graph.nodes[arc.head]
        latency = 0 if edge is None else latencies[edge, head.kind is not OpKind.FORWARD]
        cycle.append(
            CycleStep(
                stage=tail.stage,
                kind=tail.kind,
                duration=arc.weight - latency,
                edge=None if edge is None else long_program.stage_edges[edge],
                latency=latency,
                microbatches=arc.tokens * period + head.place - tail.place,
            )
        )
    kinds = tuple(sorted({node.kind for node in graph.nodes}))
    return PhaseCadence(kinds, slowest.ratio / period, tuple(cycle))
