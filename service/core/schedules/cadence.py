"""The pace of a plan: what each stage does for a microbatch, and how fast the order can repeat."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.schedules.build import with_microbatches
from service.core.schedules.catalogue import schedule_family
from service.core.schedules.cycle_ratio import maximum_cycle_ratio
from service.core.schedules.periodic import periodic_graph
from service.core.schedules.program import OpKind, Program, StageEdge
from service.core.schedules.stage_times import StageTimes, operation_kinds
from service.core.schedules.timeline import Timeline

__all__ = [
    "MOST_PERIODIC_OPERATIONS",
    "Cadence",
    "CycleStep",
    "PhaseCadence",
    "StageCadence",
    "SteadyState",
    "measure_cadence",
]


# Operations of one period: the graph that they make is searched in plain Python, in about a second.
MOST_PERIODIC_OPERATIONS = 8192

_BACKWARDS = frozenset(OpKind) - {OpKind.FORWARD, OpKind.RECOMPUTE}


@dataclass(frozen=True, slots=True)
class StageCadence:
    """What one stage does for one microbatch, in picoseconds; zero where the schedule has none.

    `ranks` has one entry for each direction. `work` counts a fused pair as its two halves.
    """

    stage: int
    ranks: tuple[int, ...]
    forward: int
    backward: int
    recompute: int
    work: int

    @property
    def rank(self) -> int:
        """The rank in the first direction."""
        return self.ranks[0]


@dataclass(frozen=True, slots=True)
class CycleStep:
    """One operation of a cycle, and the transfer that leads to the next one, if any.

    `backward_stage` is where the backward of a fused pair is, whose forward is on `stage`.
    """

    rank: int
    stage: int
    backward_stage: int
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

    `slowest_stage` has the most work (the first of equals). `steady` is absent for an order that
    does not repeat itself, for a schedule of several phases when some stage's output does not lead
    to the last stage (the slowest stages of the phases then need not follow one another), and for
    more than some hundreds of ranks, fewer where a period has many microbatches.
    """

    stages: tuple[StageCadence, ...]
    slowest_stage: int
    bound: Fraction
    steady: SteadyState | None


def measure_cadence(timeline: Timeline) -> Cadence:
    """Work per stage, and the exact pace of the steady state as a maximum cycle ratio.

    The pace is a property of the order as the iteration grows; a plan of few microbatches may end
    before it is reached.
    """
    program, times = timeline.program, timeline.times
    work = timeline.stage_work
    kinds = set(operation_kinds(program))
    none = np.zeros_like(times.forward)
    columns = zip(
        program.stage_ranks.T.tolist(),
        times.forward.tolist(),
        (times.backward if kinds & _BACKWARDS else none).tolist(),
        (times.recompute if OpKind.RECOMPUTE in kinds else none).tolist(),
        work.tolist(),
        strict=True,
    )
    return Cadence(
        stages=tuple(
            StageCadence(stage, tuple(ranks), *columns_of_stage)
            for stage, (ranks, *columns_of_stage) in enumerate(columns)
        ),
        slowest_stage=int(work.argmax()),
        bound=_bound(timeline, work),
        steady=_steady_state(timeline),
    )


def _bound(timeline: Timeline, work: npt.NDArray[np.int64]) -> Fraction:
    """The most that one rank does for a microbatch on average over the directions.

    Of microbatches whose forwards and backwards are all fused a rank runs pairs alone; whether that
    or no pair is quicker, nothing between the two is.
    """
    program, times = timeline.program, timeline.times

    def rank_work(of_stage: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        found = np.zeros(program.ranks, dtype=np.int64)
        np.add.at(found, program.stage_ranks, np.broadcast_to(of_stage, program.stage_ranks.shape))
        return found

    least = rank_work(work)
    if times.forward_backward is not None and OpKind.FORWARD_BACKWARD in operation_kinds(program):
        fused = rank_work(work - times.forward - times.backward + times.forward_backward)
        least = np.minimum(least, fused)
    return Fraction(int(least.max()), program.directions)


def _steady_state(timeline: Timeline) -> SteadyState | None:
    program = timeline.program
    family = schedule_family(program.schedule)
    if family.period is None:
        return None
    if len(family.phases) > 1 and not _all_lead_to_the_last(program):
        return None
    shape = family.shape(
        program.ranks,
        program.microbatches,
        chunks_per_rank=program.chunks_per_rank,
        group_size=program.group_size,
    )
    period = family.period(shape)
    kinds = operation_kinds(program)
    if program.stages * period * len(kinds) > MOST_PERIODIC_OPERATIONS:
        return None
    # So many microbatches that the middle of the order is steady.
    lead = family.lead * program.stages * program.directions
    long_program = with_microbatches(program, period * (2 * -(-lead // period) + 3))
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
        arc, crossing = graph.arcs[i], graph.crossings[i]
        tail, head = graph.nodes[arc.tail], graph.nodes[arc.head]
        latency = 0 if crossing is None else latencies[crossing]
        cycle.append(
            CycleStep(
                rank=tail.rank,
                stage=tail.stage,
                backward_stage=tail.backward_stage,
                kind=tail.kind,
                duration=arc.weight - latency,
                edge=None if crossing is None else long_program.stage_edges[crossing[0]],
                latency=latency,
                microbatches=arc.tokens * period + head.place - tail.place,
            )
        )
    kinds = tuple(sorted({node.kind for node in graph.nodes}))
    return PhaseCadence(kinds, slowest.ratio / period, tuple(cycle))
