"""What one iteration takes: the schedule, and what follows it on each rank.

A rank is done when it has run its last operation, its gradients are reduced, its optimizer has
stepped and, where the optimizer's state is sharded, its weights are gathered again. The iteration
is done when its last rank is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from service.core.estimates.drained import is_drained
from service.core.estimates.optimizer_step import OptimizerStep, optimizer_steps
from service.core.estimates.reduction.parts import held_bytes
from service.core.estimates.reduction.planned import (
    PlannedPart,
    PlannedReductions,
    planned_reductions,
)
from service.core.estimates.reduction.pricing import Step
from service.core.estimates.reduction.sharing import Span
from service.core.estimates.reduction.timing import exchange_copies, run_after, run_beside
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans import iteration_statements as said
from service.core.plans.plan import Statement
from service.core.plans.schedule import has_backward
from service.core.schedules.cadence import Cadence, measure_cadence
from service.core.schedules.catalogue import schedule_family
from service.core.schedules.timeline import Timeline
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = [
    "Iteration",
    "PartReduction",
    "RankIteration",
    "plan_iteration",
    "schedule_picoseconds",
    "still_left_out",
    "throughput",
    "timeline_picoseconds",
]


@dataclass(frozen=True, slots=True, eq=False)
class PartReduction:
    """The collectives of the weights of one kind of a stage; spans are on the timeline.

    None where the pipeline is never drained, and where there is no all-gather.
    """

    planned: PlannedPart
    buckets: int
    span: Span | None
    gather: Span | None


@dataclass(frozen=True, slots=True)
class RankIteration:
    """When one pipeline rank is done, in picoseconds from the start; `step` None if unknown.

    What is exposed of a reduction is its part after the last operation, and of a gather its part
    after the step.
    """

    rank: int
    last_operation: int
    reduction: Span | None
    exposed_reduction: int
    step: int | None
    gather: Span | None
    exposed_gather: int

    @property
    def end(self) -> int:
        """The sum of all that follows one another."""
        return self.last_operation + self.exposed_reduction + (self.step or 0) + self.exposed_gather


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """The predicted time of one iteration, exact, and where it comes from.

    `picoseconds` is None where the pipeline is never drained and no steady pace was found; there
    `ranks` is empty. `steps` is None where the optimizer's step is unknown. `exchanges` has the
    span of each of the plan's `tied_copies`, None where it is not known or nothing is exchanged.
    """

    picoseconds: Fraction | None
    planned: PlannedReductions
    reductions: tuple[PartReduction, ...]
    exchanges: tuple[Span | None, ...]
    steps: tuple[OptimizerStep, ...] | None
    ranks: tuple[RankIteration, ...]
    assumptions: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]

    @property
    def last_rank(self) -> int | None:
        """The first of the ranks that are done last; None without any."""
        return max(self.ranks, key=lambda one: one.end).rank if self.ranks else None


def plan_iteration(simulated: SimulatedPlan, cadence: Cadence | None = None) -> Iteration:
    """The iteration of a simulated plan; `cadence` is that of its timeline, for who has it.

    Raises `WorkBudgetExceeded` for reductions in more parts than are followed.
    """
    resolved = simulated.resolved
    held = held_bytes(resolved)
    planned = planned_reductions(resolved, held)
    steps = optimizer_steps(resolved, held) if has_backward(resolved.plan) else None
    assumptions, left_out = _said(simulated, planned, steps)
    if not is_drained(simulated):
        return Iteration(
            schedule_picoseconds(simulated, cadence),
            planned,
            tuple(PartReduction(part, 1, None, None) for part in planned.parts),
            (None,) * len(resolved.tied_copies),
            steps,
            (),
            assumptions,
            left_out,
        )
    reductions, exchanges, ranks = _on_timeline(simulated, planned, steps)
    return Iteration(
        Fraction(max(rank.end for rank in ranks)),
        planned,
        reductions,
        exchanges,
        steps,
        ranks,
        assumptions,
        left_out,
    )


def _on_timeline(
    simulated: SimulatedPlan, planned: PlannedReductions, steps: Sequence[OptimizerStep] | None
) -> tuple[tuple[PartReduction, ...], tuple[Span | None, ...], tuple[RankIteration, ...]]:
    timeline = simulated.timeline
    asked = planned.reduction
    tasks = [(part, task) for part in planned.parts if (task := part.task(Step.REDUCTION))]
    run = run_beside(
        timeline,
        simulated.resolved.sizes,
        [task for _, task in tasks],
        asked.overlap,
        asked.bucket_bytes,
    )
    reduced = [(part, *found) for (part, _), found in zip(tasks, run, strict=True)]
    last = [int(end) for end in timeline.last_end]
    ends: dict[int, int] = {}
    for part, span, _ in reduced:
        stage = part.part.held.stage
        ends[stage] = max(ends.get(stage, 0), span.end)
    copies = simulated.resolved.tied_copies
    exchanges = exchange_copies(timeline, copies, ends, asked.overlap)
    adding = [(part.part.pipeline_ranks, span) for part, span, _ in reduced]
    adding += [
        (one.pipeline_ranks, span)
        for one, span in zip(copies, exchanges, strict=True)
        if span is not None
    ]
    reduction = _by_rank(len(last), adding)
    exposed = [_after(span, end) for span, end in zip(reduction, last, strict=True)]
    step = [None if steps is None else steps[rank].picoseconds for rank in range(len(last))]
    stepped = [last[rank] + exposed[rank] + (step[rank] or 0) for rank in range(len(last))]
    gathers = [(part, task) for part in planned.parts if (task := part.task(Step.GATHER))]
    spans = run_after([task for _, task in gathers], stepped)
    gathered = {part: span for (part, _), span in zip(gathers, spans, strict=True)}
    gather = _by_rank(
        len(last), [(part.part.pipeline_ranks, span) for part, span in gathered.items()]
    )
    return (
        tuple(
            PartReduction(part, buckets, span, gathered.get(part))
            for part, span, buckets in reduced
        ),
        exchanges,
        tuple(
            RankIteration(
                rank=rank,
                last_operation=last[rank],
                reduction=reduction[rank],
                exposed_reduction=exposed[rank],
                step=step[rank],
                gather=gather[rank],
                exposed_gather=_after(gather[rank], stepped[rank]),
            )
            for rank in range(len(last))
        ),
    )


def _by_rank(ranks: int, spans: Iterable[tuple[Sequence[int], Span]]) -> list[Span | None]:
    """From the first start to the last end of those on each rank; each has the ranks that run it.

    None of a rank without any.
    """
    found: list[Span | None] = [None] * ranks
    for on, span in spans:
        for rank in on:
            known = found[rank] or span
            found[rank] = Span(min(known.start, span.start), max(known.end, span.end))
    return found


def _after(span: Span | None, instant: int) -> int:
    return 0 if span is None else max(0, span.end - instant)


def _said(
    simulated: SimulatedPlan, planned: PlannedReductions, steps: Sequence[OptimizerStep] | None
) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
    """What is assumed of all this, and what is left out."""
    assumptions, left_out = list(planned.assumptions), list(planned.not_represented)
    if not has_backward(simulated.resolved.plan):
        return (), ()
    training = simulated.resolved.plan.training
    if steps is None:
        why = "no optimizer is named"
        if training is not None:
            why = "the plan gives no time, and no device with its memory bandwidth"
            if simulated.resolved.cluster is not None:
                why = "the parameters, or the memory bandwidth of a device, are not known"
        left_out.append(said.step_unknown(why))
    elif training is not None and training.optimizer_step_seconds is not None:
        assumptions.append(said.STEP_GIVEN)
    else:
        assumptions.append(said.STEP_AT_MEMORY_BANDWIDTH)
    if _exchanged(simulated):
        assumptions.append(said.TIED_COPIES_FOLLOW)
    if steps is not None or planned.parts:
        left_out.append(said.GRADIENT_NORM)
        if not is_drained(simulated):
            left_out.append(said.ASYNCHRONOUS_UPDATES)
    return tuple(assumptions), tuple(left_out)


def _exchanged(simulated: SimulatedPlan) -> bool:
    """Whether gradients of copies are exchanged, and the time of all of it is known."""
    copies = [one for one in simulated.resolved.tied_copies if one.groups]
    times = [one.picoseconds for one in copies if one.rank_gradient_bytes]
    return is_drained(simulated) and bool(times) and None not in times


# What a plan says of itself where nobody looks beyond its schedule.
_OF_THE_SCHEDULE = frozenset({"data_parallel_reduction", "two_copies_reduction", "optimizer_step"})
_UNUSED = frozenset({"training", "parameter_counts"})


def still_left_out(iteration: Iteration, left_out: Sequence[Statement]) -> tuple[Statement, ...]:
    """Of what a resolved plan leaves out, what its iteration leaves out too, each said once."""
    used = bool(iteration.planned.parts) or iteration.steps is not None
    told = _OF_THE_SCHEDULE | _UNUSED if used else _OF_THE_SCHEDULE
    if said.TIED_COPIES_FOLLOW in iteration.assumptions:
        told |= {"tied_copies_exchange"}
    kept = tuple(statement for statement in left_out if statement.code not in told)
    return (*kept, *iteration.not_represented)


def schedule_picoseconds(
    simulated: SimulatedPlan, cadence: Cadence | None = None
) -> Fraction | None:
    """The time of the schedule of a plan alone, as `timeline_picoseconds`."""
    return timeline_picoseconds(simulated.timeline, cadence)


def timeline_picoseconds(timeline: Timeline, cadence: Cadence | None = None) -> Fraction | None:
    """The time of an iteration that has nothing in it but its schedule, exact; None if unknown.

    The makespan of the timeline where the pipeline is drained; else the microbatches times the pace
    of the steady state, as fill and drain come once in a whole training, and unknown without it.
    `cadence` is that of the timeline, for who has it.
    """
    program = timeline.program
    if schedule_family(program.schedule).update is None:
        return Fraction(timeline.makespan)
    steady = (cadence or measure_cadence(timeline)).steady
    return None if steady is None else program.microbatches * steady.per_microbatch


def throughput(
    simulated: SimulatedPlan, iteration: Fraction | None
) -> tuple[float | None, float | None]:
    """Samples and tokens per second of an iteration; None where it or a size is unknown."""
    resolved = simulated.resolved
    if resolved.global_batch_size is None or iteration is None:
        return None, None
    samples = resolved.global_batch_size * PICOSECONDS_PER_SECOND / iteration
    if resolved.sequence_length is None:
        return float(samples), None
    # Every microbatch has as many samples, so a sample has the mean length of the microbatches.
    tokens_per_sample = resolved.sizes.spread(resolved.sequence_length).mean
    return float(samples), float(samples) * float(tokens_per_sample)
