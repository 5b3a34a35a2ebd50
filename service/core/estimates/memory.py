"""Whether a plan fits: every rank at the instant when it holds most, term by term."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.estimates.activations import known_activation_deltas
from service.core.memory.experts import expert_ranks
from service.core.memory.live import ActivationDeltas, byte_series
from service.core.memory.standing import OnRank, Standing, on_ranks, standing_terms
from service.core.memory.terms import (
    OPTIMIZER_STEP,
    Instant,
    RankMemory,
    Term,
    TermBytes,
    TermOrigin,
    UnknownTerm,
    judge,
)
from service.core.plans.memory_settings import RESERVE_FRACTION, USABLE_FRACTION
from service.core.plans.payloads import MAX_BYTES
from service.core.plans.plan import Provenance, ResolvedPlan, ResolvedStage
from service.core.plans.schedule import has_backward, plan_family
from service.core.schedules.program import OpKind, Program
from service.core.schedules.stage_times import pick
from service.core.schedules.timeline import Timeline
from service.core.schedules.weight_versions import weight_versions

__all__ = ["PlanMemory", "plan_memory"]

Int64Array = npt.NDArray[np.int64]

# What the plan's section `memory` may state itself, and what to do where a section is too much.
_SETTINGS = frozenset({Term.WORKSPACE, Term.COMMUNICATORS, Term.CONTEXT, Term.GRADIENT_BUCKETS})
_LESS = {
    "costs": "fewer parameters, smaller activations or fewer microbatches",
    "memory": "state less for buffers, workspace or context",
}

_MAKE_GRADIENTS = (
    OpKind.BACKWARD,
    OpKind.BACKWARD_INPUT,
    OpKind.BACKWARD_WEIGHT,
    OpKind.FORWARD_BACKWARD,
)


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """Every pipeline rank. `feasible` is None where no rank is known not to fit and one is open."""

    ranks: tuple[RankMemory, ...]
    feasible: bool | None

    @property
    def unknown(self) -> tuple[UnknownTerm, ...]:
        """What is not known on any rank, each once."""
        return tuple(dict.fromkeys(one for rank in self.ranks for one in rank.unknown))

    @property
    def least_headroom(self) -> int | None:
        """Of the fullest rank; None where no rank's capacity is known."""
        known = [rank.verdict.headroom for rank in self.ranks]
        return min((each for each in known if each is not None), default=None)


def plan_memory(
    resolved: ResolvedPlan, program: Program, timeline: Timeline | None = None
) -> PlanMemory:
    """The memory of each pipeline rank along the order of `program`.

    Peaks follow from the order alone; a timeline of it adds when they are reached. Raises
    `InvalidInput` where a rank would hold more than 2**53 - 1 bytes.
    """
    moving = _moving(resolved, program)
    update = plan_family(resolved.plan).update
    copies = [1] * program.ranks
    if update is not None:
        copies = [one.copies for one in weight_versions(program, update)]
    experts = expert_ranks(resolved)
    ranks = tuple(
        replace(
            _rank(resolved, program, timeline, here, moving, copies[here.rank]),
            experts=experts.get(here.rank),
        )
        for here in on_ranks(resolved)
    )
    verdicts = [rank.verdict.feasible for rank in ranks]
    feasible: bool | None = True if all(verdicts) else None
    if False in verdicts:
        feasible = False
    return PlanMemory(ranks, feasible)


@dataclass(frozen=True, slots=True, eq=False)
class _Moving:
    """(operations,) bytes of each term during each operation, and stages of unknown ones."""

    series: dict[Term, Int64Array]
    makes_gradients: npt.NDArray[np.bool_]
    unknown: dict[int, UnknownTerm]
    recompute_unknown: frozenset[int]


def _moving(resolved: ResolvedPlan, program: Program) -> _Moving:
    deltas, missing = known_activation_deltas(resolved)
    table = resolved.sizes.table
    all_live = byte_series(program, replace(deltas, passed_on=None))[::2]
    again = [
        0 if stage.activation_deltas is not None else stage.recomputed_bytes or 0
        for stage in resolved.stages
    ]
    kept_logits = [0 if stage.logits is None else stage.logits.kept for stage in resolved.stages]
    series = {}
    if deltas.passed_on is not None:
        series[Term.RELAYED_TENSORS] = byte_series(program, deltas)[::2] - all_live
    recomputed = np.zeros_like(all_live)
    if any(again):
        made = table(again)
        zero = np.zeros_like(made)
        recomputed = byte_series(program, ActivationDeltas(zero, zero, -made, made))[::2]
        series[Term.RECOMPUTED_ACTIVATIONS] = recomputed
    logits = np.zeros_like(all_live)
    if any(stage.logits is not None for stage in resolved.stages):
        kept = ActivationDeltas.kept_to_the_end(table(kept_logits))
        logits = byte_series(program, kept)[::2]
        series[Term.LOGITS] = logits + _during(resolved, program)
    series[Term.ACTIVATIONS] = all_live - recomputed - logits
    reason = "the activation bytes of a stage of the rank are not given"
    return _Moving(
        series,
        np.isin(program.kind, _MAKE_GRADIENTS),
        {stage: UnknownTerm(Term.ACTIVATIONS, reason) for stage in missing},
        frozenset(stage.stage for stage in resolved.stages if stage.recomputed_bytes is None),
    )


def _during(resolved: ResolvedPlan, program: Program) -> Int64Array:
    """(operations,) logits that are there for the length of an operation alone."""
    stages = resolved.stages
    table = resolved.sizes.table
    forward = table([0 if s.logits is None else s.logits.in_forward for s in stages])
    backward = table([0 if s.logits is None else s.logits.in_backward for s in stages])
    kind = program.kind
    pair = kind == OpKind.FORWARD_BACKWARD
    of_forward = pick(forward, program.stage, program.microbatch)
    of_backward = pick(backward, program.backward_stage, program.backward_microbatch)
    makes = pair | (kind == OpKind.BACKWARD) | (kind == OpKind.BACKWARD_INPUT)
    return np.where((kind == OpKind.FORWARD) | pair, of_forward, 0) + np.where(
        makes, of_backward, 0
    )


def _rank(
    resolved: ResolvedPlan,
    program: Program,
    timeline: Timeline | None,
    here: OnRank,
    moving: _Moving,
    versions: int,
) -> RankMemory:
    rank = here.rank
    first, stop = program.rank_offsets[rank : rank + 2].tolist()
    stages = tuple(stage.stage for stage in here.stages)
    standing, unknown = standing_terms(resolved, here, versions)
    stated = sum(one.bytes for one in standing if one.term in _SETTINGS)
    _refuse_too_much(rank, stated, "memory")
    _refuse_too_much(rank, sum(one.bytes for one in standing), "costs")
    unknown += dict.fromkeys(moving.unknown[stage] for stage in stages if stage in moving.unknown)
    open_activations = any(stage in moving.unknown for stage in stages)
    if moving.recompute_unknown.intersection(stages):
        reason = "what a recomputation makes on a stage of the rank is not given"
        unknown.append(UnknownTerm(Term.RECOMPUTED_ACTIVATIONS, reason))
    makes = moving.makes_gradients[first:stop]
    asynchronous = plan_family(resolved.plan).update is not None
    if asynchronous and program.microbatches < program.ranks - rank:
        reason = "a pipeline that is never drained has microbatches of the next iteration in flight"
        unknown.append(UnknownTerm(Term.ACTIVATIONS, reason))
    during: dict[Term, Int64Array] = {}
    for term, series in moving.series.items():
        if not open_activations or term in (Term.LOGITS, Term.RELAYED_TENSORS):
            during[term] = series[first:stop]
    at_step = {}
    for one in standing:
        during[one.term], at_step[one.term] = _present(one, makes, asynchronous)
    summed = sum(during.values(), np.zeros(stop - first, dtype=np.int64))
    place = int(summed.argmax())
    step = has_backward(resolved.plan) and sum(at_step.values()) > int(summed[place])
    found = {
        term: at_step.get(term, 0) if step else int(series[place])
        for term, series in during.items()
    }
    maximum = {
        term: max(int(series.max()), at_step.get(term, 0)) for term, series in during.items()
    }
    said = {one.term: (one.origin, one.rule) for one in standing} | _moving_rules(here.stages)
    terms = [
        TermBytes(term, found[term], maximum[term], *said[term])
        for term in Term
        if maximum.get(term)
    ]
    terms = _with_reserve(resolved, terms)
    _refuse_too_much(rank, sum(term.at_peak for term in terms), "costs")
    capacity, settings = resolved.memory_bytes[rank], resolved.plan.memory
    return RankMemory(
        rank=rank,
        stages=stages,
        peak=_instant(program, timeline, first + place, stop - 1, step=step),
        terms=tuple(terms),
        unknown=tuple(unknown),
        capacity=capacity,
        verdict=judge(
            terms,
            capacity=capacity,
            usable_fraction=_or_default(settings.usable_fraction, USABLE_FRACTION),
            reserve_fraction=_or_default(settings.reserve_fraction, RESERVE_FRACTION),
            has_unknown=bool(unknown),
        ),
    )


def _refuse_too_much(rank: int, size: int, section: str) -> None:
    if size > MAX_BYTES:
        detail = f"rank {rank} would hold more than {MAX_BYTES} bytes: {_LESS[section]}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (section,), detail)])


def _present(
    one: Standing, makes: npt.NDArray[np.bool_], asynchronous: bool
) -> tuple[Int64Array, int]:
    """During each operation of a rank, and at the optimizer's step.

    An asynchronous schedule updates between operations, right after one that makes gradients.
    """
    full = np.full(len(makes), one.bytes, dtype=np.int64)
    if one.at_step:
        return np.where(makes & asynchronous, full, 0), one.bytes
    if one.in_backwards:
        return np.where(makes, full, 0), 0
    return full, 0 if one.in_operations else one.bytes


def _moving_rules(stages: Sequence[ResolvedStage]) -> dict[Term, tuple[TermOrigin, str]]:
    origin = TermOrigin.MEASURED
    if any(stage.provenance is Provenance.GIVEN for stage in stages):
        origin = TermOrigin.GIVEN
    if any(stage.activations_assumed for stage in stages):
        origin = TermOrigin.ASSUMED
    return {
        Term.ACTIVATIONS: (
            origin,
            "what the microbatches in flight keep on the stages of the rank for their backward",
        ),
        Term.RELAYED_TENSORS: (
            TermOrigin.COMPUTED,
            "tensors that a stage of the rank carries for others, during its operations",
        ),
        Term.RECOMPUTED_ACTIVATIONS: (origin, "what is computed again, until its backward"),
        Term.LOGITS: (
            TermOrigin.ASSUMED,
            "logits of microbatches in flight, and their gradient in a backward",
        ),
    }


def _with_reserve(resolved: ResolvedPlan, terms: list[TermBytes]) -> list[TermBytes]:
    given = resolved.plan.memory.reserve_fraction
    fraction = _or_default(given, RESERVE_FRACTION)
    allocated = [term for term in terms if term.term.is_allocated]
    size = ceil(sum(term.at_peak for term in allocated) * fraction)
    if not size:
        return terms
    rule = f"{fraction} of what is allocated is lost to fragmentation"
    origin = TermOrigin.DEFAULT if given is None else TermOrigin.GIVEN
    others = [term for term in terms if not term.term.is_allocated]
    return [*allocated, TermBytes(Term.RESERVE, size, size, origin, rule), *others]


def _instant(
    program: Program, timeline: Timeline | None, operation: int, last: int, *, step: bool
) -> Instant:
    if step:
        end = None if timeline is None else int(timeline.run.end[last])
        return Instant(OPTIMIZER_STEP, None, end)
    start = None if timeline is None else int(timeline.run.start[operation])
    return Instant(program.label(operation), operation, start)


def _or_default(given: float | None, default: float) -> float:
    return default if given is None else given
