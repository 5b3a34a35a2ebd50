"""The pace of a plan: what each stage does for a microbatch, and how fast the order can repeat."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from service.core.amounts import Spread, repeat_of
from service.core.schedules.build import with_microbatches
from service.core.schedules.catalogue import schedule_family
from service.core.schedules.cycle_ratio import maximum_cycle_ratio
from service.core.schedules.no_steady import NoSteady, no_longer_program
from service.core.schedules.periodic import periodic_graph
from service.core.schedules.program import OpKind, Program, StageEdge
from service.core.schedules.simulated_pace import simulated_paces
from service.core.schedules.stage_times import (
    StageTimes,
    operation_durations,
    operation_kinds,
    stage_work,
)
from service.core.schedules.timeline import Timeline
from service.core.schedules.transfers import Transfers

__all__ = [
    "MOST_PERIODIC_OPERATIONS",
    "Cadence",
    "CycleStep",
    "PhaseCadence",
    "StageCadence",
    "SteadyState",
    "measure_cadence",
    "microbatch_repeat",
]

Int64Array = npt.NDArray[np.int64]

# Operations of one period: the graph that they make is searched again for every plan.
MOST_PERIODIC_OPERATIONS = 8192

_BACKWARDS = frozenset(OpKind) - {OpKind.FORWARD, OpKind.RECOMPUTE}


@dataclass(frozen=True, slots=True)
class StageCadence:
    """What one stage does for one microbatch, in picoseconds; zero where the schedule has none.

    Means over the microbatches; `work_spread` has the least and the most. `ranks` has one entry for
    each direction. `work` counts a fused pair as its two halves.
    """

    stage: int
    ranks: tuple[int, ...]
    forward: Fraction
    backward: Fraction
    recompute: Fraction
    work_spread: Spread

    @property
    def work(self) -> Fraction:
        """All of it together."""
        return self.work_spread.mean

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

    `per_microbatch` = the cycle's durations and latencies / the microbatches that pass in it. Where
    transfers queue on links the pace is that of a long simulation, and there is no cycle.
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
    """`bound` is the least work of the busiest rank for a microbatch (ps): no order repeats faster.

    It is a mean over the microbatches of the iteration. `slowest_stage` has the most work (the
    first of equals). Of `steady` and `no_steady`, why there is none, one is absent.
    """

    stages: tuple[StageCadence, ...]
    slowest_stage: int
    bound: Fraction
    steady: SteadyState | None
    bound_by: str  # what sets the bound: `rank 2`, or the name of a link
    no_steady: NoSteady | None


def measure_cadence(timeline: Timeline, least: StageTimes | None = None) -> Cadence:
    """Work per stage, and the exact pace of the steady state as a maximum cycle ratio.

    The bound is of `least`, where the times of the timeline have predictions in them that are more.

    Where transfers queue on links it is simulated instead: see `simulated_paces`.

    The pace is a property of the order as the iteration grows; a plan of few microbatches may end
    before it is reached. Microbatches that differ are taken to go on as they repeat.
    """
    program, times = timeline.program, timeline.times
    work = timeline.stage_work
    kinds = set(operation_kinds(program))
    none = np.zeros_like(times.forward)
    forward = _spreads(program, times.forward)
    backward = _spreads(program, times.backward if kinds & _BACKWARDS else none)
    recompute = _spreads(program, times.recompute if OpKind.RECOMPUTE in kinds else none)
    of_work = _spreads(program, work)
    bound, busiest = _bound(program, times if least is None else least)
    steady = _steady_state(timeline)
    return Cadence(
        stages=tuple(
            StageCadence(
                stage,
                tuple(ranks),
                forward[stage].mean,
                backward[stage].mean,
                recompute[stage].mean,
                of_work[stage],
            )
            for stage, ranks in enumerate(program.stage_ranks.T.tolist())
        ),
        slowest_stage=int(work.sum(axis=1).argmax()),
        bound=bound,
        steady=None if isinstance(steady, NoSteady) else steady,
        bound_by=f"rank {busiest}",
        no_steady=steady if isinstance(steady, NoSteady) else None,
    )


def _spreads(program: Program, times: Int64Array) -> list[Spread]:
    """Of each stage over the microbatches."""
    count = program.microbatches
    alike = times.shape[1] == 1
    return [
        Spread(min(row), max(row), row[0] * count if alike else sum(row), count)
        for row in times.tolist()
    ]


def _bound(program: Program, times: StageTimes) -> tuple[Fraction, int]:
    """The most that one rank does for a microbatch, on average over them and the directions.

    And the rank, the first of equals.

    Of microbatches that are alike and whose forwards and backwards are all fused a rank runs pairs
    alone; whether that or no pair is quicker, nothing between the two is. Where they differ, each
    forward is taken to be fused with the longest backward on its rank where that saves time.
    """
    work = stage_work(program, times)
    fused = times.forward_backward
    if OpKind.FORWARD_BACKWARD not in operation_kinds(program):
        fused = None
    if times.widths == {1}:
        least = _rank_work(program, work)
        if fused is not None:
            in_pairs = _rank_work(program, work - times.forward - times.backward + fused)
            least = np.minimum(least, in_pairs)
    else:
        least = _rank_work(program, work)
        if fused is not None:
            longest = np.zeros(program.ranks, dtype=np.int64)
            of_stage = np.broadcast_to(times.backward.max(axis=1), program.stage_ranks.shape)
            np.maximum.at(longest, program.stage_ranks, of_stage)
            least = least - sum(
                _rank_work(
                    program,
                    np.maximum(times.forward + longest[ranks, np.newaxis] - fused, 0),
                    direction,
                )
                for direction, ranks in enumerate(program.stage_ranks)
            )
    return Fraction(int(least.max()), program.microbatches), int(least.argmax())


def _rank_work(program: Program, of_stage: Int64Array, only: int | None = None) -> Int64Array:
    """(ranks,) picoseconds of all microbatches, of one direction or of all, on each rank."""
    found = np.zeros(program.ranks, dtype=np.int64)
    for direction, ranks in enumerate(program.stage_ranks):
        if only in (None, direction):
            every = np.arange(direction, program.microbatches, program.directions)
            one_for_all = of_stage.shape[1] == 1
            total = of_stage[:, 0] * len(every) if one_for_all else of_stage[:, every].sum(axis=1)
            np.add.at(found, ranks, total)
    return found


def _steady_state(timeline: Timeline) -> SteadyState | NoSteady:
    program = timeline.program
    family = schedule_family(program.schedule)
    if family.period is None:
        if family.takes_order:
            return NoSteady.ORDER_WRITTEN_OUT
        if family.passes:
            return NoSteady.ORDER_MADE_BY_TRYING
        return NoSteady.ORDER_OF_WHOLE_ITERATIONS
    if len(family.phases) > 1 and not _all_lead_to_the_last(program):
        return NoSteady.PHASES_APART
    repeat = microbatch_repeat(timeline)
    if repeat is None:
        return NoSteady.MICROBATCHES_DO_NOT_REPEAT
    shape = family.shape(
        program.ranks,
        program.microbatches,
        chunks_per_rank=program.chunks_per_rank,
        group_size=program.group_size,
    )
    period = lcm(family.period(shape), repeat)
    kinds = operation_kinds(program)
    if program.stages * period * len(kinds) > MOST_PERIODIC_OPERATIONS:
        return NoSteady.TOO_LARGE
    lead = family.lead * program.stages * program.directions
    if timeline.transfers.links is not None:
        paces = simulated_paces(
            program,
            family.phases,
            period,
            lead,
            timeline.times,
            timeline.transfers,
            repeat,
        )
        if isinstance(paces, NoSteady):
            return paces
        return SteadyState(
            tuple(
                PhaseCadence(tuple(kind for kind in kinds if kind in phase), pace, ())
                for phase, pace in zip(family.phases, paces, strict=True)
            )
        )
    # So many microbatches that the middle of the order is steady.
    count = period * (2 * -(-lead // period) + 3)
    long_program = with_microbatches(program, count)
    if long_program is None:
        return no_longer_program(program, count)
    going_on = np.arange(long_program.microbatches) % repeat
    durations = operation_durations(long_program, timeline.times.at_microbatches(going_on))
    transfers = timeline.transfers.at_microbatches(going_on)
    return SteadyState(
        tuple(
            _phase_cadence(long_program, phase, period, durations, transfers)
            for phase in family.phases
        )
    )


def microbatch_repeat(timeline: Timeline) -> int | None:
    """After how many microbatches their times repeat: 1 where all are alike, None for never.

    An iteration has to hold them twice or more, and whole: the pace then is one of the microbatches
    it has. Where the pipeline is never drained the next iteration follows at once, so there they
    repeat after an iteration at the latest.
    """
    program = timeline.program
    every = [getattr(timeline.times, field.name) for field in fields(timeline.times)]
    every += [timeline.forward_latencies, timeline.backward_latencies]
    links = timeline.transfers.links
    if links is not None and links.own is not None:
        every += links.own.of_kinds.values()
    columns = [times for times in every if times is not None and times.shape[1] > 1]
    if not columns:
        return 1
    alike = np.unique(np.concatenate(columns), axis=1, return_inverse=True)[1]
    repeat = repeat_of(alike.ravel().tolist())
    if program.microbatches % repeat:
        repeat = program.microbatches
    drained = schedule_family(program.schedule).update is None
    return None if drained and repeat == program.microbatches else repeat


def _all_lead_to_the_last(program: Program) -> bool:
    """Edges go up, so it is enough that every stage but the last has one, and a gradient of it."""
    joined = {edge.source for edge in program.stage_edges if edge.gradient}
    return joined >= set(range(program.stages - 1))


def _phase_cadence(
    long_program: Program,
    phase: AbstractSet[OpKind],
    period: int,
    durations: Int64Array,
    transfers: Transfers,
) -> PhaseCadence:
    graph = periodic_graph(
        long_program,
        phase,
        period,
        durations,
        transfers.latencies(long_program),
        holds_senders=transfers.holds_senders,
    )
    slowest = maximum_cycle_ratio(len(graph.nodes), graph.arcs)
    cycle = []
    for i in slowest.cycle:
        arc, crossing = graph.arcs[i], graph.crossings[i]
        tail, head = graph.nodes[arc.tail], graph.nodes[arc.head]
        latency = 0 if crossing is None else crossing[2]
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
