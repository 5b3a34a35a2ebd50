"""The closed form of a schedule, held against what a timeline was simulated from."""

from dataclasses import dataclass

from service.core.schedules.build import chain
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.closed_forms import EqualStages, Metric
from service.core.schedules.program import OpKind, RecomputeMode
from service.core.schedules.stage_times import operation_kinds
from service.core.schedules.timeline import Timeline

__all__ = ["ClosedFormFailure", "IdealUtilisation", "judge_closed_form"]


@dataclass(frozen=True, slots=True)
class IdealUtilisation:
    """Utilisation by the schedule's closed form, where its conditions are met.

    `picoseconds` is the makespan or the span, as `metric` says.
    """

    utilisation: float
    metric: Metric
    picoseconds: int
    formula: str
    conditions: str


@dataclass(frozen=True, slots=True)
class ClosedFormFailure:
    """A published formula that is not exact for a plan, and the first condition it fails."""

    formula: str
    conditions: str
    reason: str


def judge_closed_form(timeline: Timeline) -> IdealUtilisation | ClosedFormFailure | None:
    """What the schedule's published form gives, or why it does not hold; None where it has none."""
    program = timeline.program
    family = SCHEDULES.get(program.schedule)
    form = None if family is None else family.closed_form
    if form is None:
        return None
    reason = _unmet_everywhere(timeline)
    if reason is None:
        equal = _equal_stages(timeline)
        reason = form.unmet(equal)
    if reason is not None:
        return ClosedFormFailure(form.name, form.conditions, reason)
    value = form.value(equal)
    return IdealUtilisation(
        utilisation=equal.rank_work / value,
        metric=form.metric,
        picoseconds=value,
        formula=form.name,
        conditions=form.conditions,
    )


def _unmet_everywhere(timeline: Timeline) -> str | None:
    """The condition that all forms share and this timeline does not meet, if any."""
    program, times = timeline.program, timeline.times
    for kind in operation_kinds(program):
        known = times.forward_backward is not None or kind is not OpKind.FORWARD_BACKWARD
        of_kind = times.of_kind(kind) if known else times.forward + times.backward
        if (of_kind != of_kind[:1]).any():
            return "stages are not equal"
        if (of_kind != of_kind[:, :1]).any():
            return "microbatches are not equal"
    has_gradients = operation_kinds(program) != (OpKind.FORWARD,)
    joined = {
        (edge.source, edge.target, edge.direction)
        for edge in program.stage_edges
        if edge.gradient or not has_gradients
    }
    in_chain = chain(program.stages, program.directions)
    if not joined >= {(edge.source, edge.target, edge.direction) for edge in in_chain}:
        return "stages are not joined in a chain"
    if timeline.latencies.any():
        return "transfers take time"
    if program.recompute is RecomputeMode.BEFORE_GRADIENT and _recompute(timeline):
        return "recomputation starts before its gradient"
    return None


def _recompute(timeline: Timeline) -> int:
    if OpKind.RECOMPUTE not in operation_kinds(timeline.program):
        return 0
    return int(timeline.times.recompute[0, 0])


def _equal_stages(timeline: Timeline) -> EqualStages:
    """The times of any stage and microbatch; a recomputation is the start of its backward."""
    program, times = timeline.program, timeline.times
    kinds = set(operation_kinds(program))
    again = _recompute(timeline)
    forward, backward = int(times.forward[0, 0]), int(times.backward[0, 0])
    halves = times.backward_input, times.backward_weight
    fused = times.forward_backward
    pair = None
    if OpKind.FORWARD_BACKWARD in kinds:
        pair = again + (forward + backward if fused is None else int(fused[0, 0]))
    return EqualStages(
        ranks=program.ranks,
        microbatches=program.microbatches,
        chunks=program.chunks_per_rank,
        forward=forward,
        backward=backward + again if kinds - {OpKind.FORWARD, OpKind.RECOMPUTE} else 0,
        backward_input=again + (0 if halves[0] is None else int(halves[0][0, 0])),
        backward_weight=0 if halves[1] is None else int(halves[1][0, 0]),
        pair=pair,
    )
