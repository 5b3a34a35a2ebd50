"""What of the difference between two plans is due to what: one change at a time, by simulation.

Two plans differ in what their stages take (compute), in what their transfers take and where they go
(transfer), in the order in which ranks run (order), and in how transfers wait for links
(contention). Each cause is taken alone: the first plan is run again with that one thing of the
second. What the causes together do beyond their sum is the interaction, which is told and not
shared out: docs/decisions/0020-comparing-plans.md tells why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from service.core.errors import InvalidInput
from service.core.estimates.drained import is_drained
from service.core.estimates.iteration import timeline_picoseconds
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.plan import Statement
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.build import with_edges
from service.core.schedules.catalogue import schedule_family
from service.core.schedules.program import Program, RecomputeMode
from service.core.schedules.stage_times import TIMES_OF_KIND, StageTimes, operation_kinds
from service.core.schedules.timeline import simulate_transfers
from service.core.schedules.transfers import Transfers

__all__ = [
    "MAX_ALONE",
    "NOT_MIXED",
    "Attribution",
    "AttributionMethod",
    "Cause",
    "attribute",
    "laid_out",
    "mixed",
    "replays_of",
]

Int64Array = npt.NDArray[np.int64]
Key = TypeVar("Key", int, tuple[int, int])

NOT_MIXED = Statement(
    "attribution",
    "what causes the difference of the means: under some workload there is no attribution, or they "
    "were made in different ways",
)

# Stages, and transfers between stages, that are each exchanged alone: those that differ most.
MAX_ALONE = 32
# Both plans without queues, each of three causes, and the splits of both where these fail.
_FIXED_REPLAYS = 2 + 3 + 2 * 3


class Cause(StrEnum):
    """What two plans may differ in, as far as it takes time."""

    COMPUTE = "compute"
    TRANSFER = "transfer"
    ORDER = "order"
    CONTENTION = "contention"
    UPDATE = "update"
    INTERACTION = "interaction"


class AttributionMethod(StrEnum):
    """How a difference was shared out."""

    ONE_CHANGE = "one_change_at_a_time"
    OWN_SPLITS = "difference_of_own_splits"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The difference of two iterations in picoseconds, signed: what the second takes longer.

    `effects` has one entry for each cause, and they sum to `difference` exactly. By `ONE_CHANGE`
    each but the interaction is what that cause does alone; contention is the difference between
    what queues on links cost each plan. By `OWN_SPLITS`, where the plans have no operations in
    common to exchange, each plan's makespan is split by itself as in `measure_bubble` and the parts
    are subtracted: compute is the mean work of a rank and what unequal stages cost, order is what
    the order alone costs, and there is no interaction.

    `stages` has for each stage whose times differ what exchanging these alone does, `edges` the
    same for the transfers between a stage and a later one, both ways; what cannot be exchanged
    alone is absent.
    """

    difference: Fraction
    effects: Mapping[Cause, Fraction]
    method: AttributionMethod
    stages: Mapping[int, Fraction]
    edges: Mapping[tuple[int, int], Fraction]

    def of_iterations(self, difference: Fraction) -> "Attribution":
        """That of whole iterations, of which this one is that of the schedules in them.

        What the iterations differ beyond their schedules is the update: what gradient reduction,
        optimizer step and gathering of weights add after the last operations.
        """
        effects = {**self.effects, Cause.UPDATE: difference - self.difference}
        ordered = {cause: effects[cause] for cause in Cause}
        return replace(self, difference=difference, effects=ordered)

    @property
    def cause(self) -> Cause | None:
        """Of the causes that work in the direction of the difference the one with most effect.

        None where there is no difference.
        """
        if not self.difference:
            return None
        sign = 1 if self.difference > 0 else -1
        return max(self.effects, key=lambda cause: sign * self.effects[cause])


def replays_of(stages: int) -> int:
    """How many simulations `attribute` makes at most of plans of so many stages."""
    return _FIXED_REPLAYS + 2 * min(stages, MAX_ALONE)


def attribute(before: SimulatedPlan, after: SimulatedPlan) -> Attribution | None:
    """Share out what the schedule of the second plan takes longer than that of the first.

    Up to `replays_of` further simulations of either plan. None where an iteration is not known, and
    where a pipeline that is never drained has no operations in common with the other.
    """
    queued = [timeline_picoseconds(plan.timeline) for plan in (before, after)]
    runs = [_own_run(plan) for plan in (before, after)]
    alone = [
        pace if plan.timeline.transfers.links is None else run.pace()
        for plan, run, pace in zip((before, after), runs, queued, strict=True)
    ]
    times = _Times.of(queued, alone)
    if times is None:
        return None
    for share_out in (_one_change, _own_splits):
        try:
            found = share_out(before, after, times)
        except InvalidInput:
            # A kind of operation that one plan has no times of, or times too long to be exchanged
            # or averaged: each plan was fine by itself.
            continue
        if found is not None:
            return found
    return None


def mixed(shares: Sequence[Fraction], found: Sequence[Attribution | None]) -> Attribution | None:
    """The mean of attributions by shares that sum to 1; its effects sum to its difference too.

    None where one of them is unknown, and where they were not all made in one way.
    """
    known = [one for one in found if one is not None]
    if len(known) < len(found) or len({one.method for one in known}) > 1:
        return None
    pairs = list(zip(shares, known, strict=True))
    return Attribution(
        difference=sum((share * one.difference for share, one in pairs), Fraction(0)),
        effects={
            cause: sum((share * one.effects.get(cause, 0) for share, one in pairs), Fraction(0))
            for cause in Cause
            if any(cause in one.effects for one in known)
        },
        method=known[0].method,
        stages={},
        edges={},
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """Picoseconds of both iterations, with and without queues on links."""

    difference: Fraction
    first: Fraction  # without queues
    contention: Fraction

    @classmethod
    def of(
        cls, queued: Sequence[Fraction | None], alone: Sequence[Fraction | None]
    ) -> "_Times | None":
        """None where any of them is unknown."""
        known = [time for time in (*queued, *alone) if time is not None]
        if len(known) < 4:
            return None
        first, second, first_alone, second_alone = known
        difference = second - first
        return cls(difference, first_alone, difference - (second_alone - first_alone))


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """An order with its edges, the times of its stages, and transfers that queue nowhere."""

    program: Program
    times: StageTimes
    transfers: Transfers

    def pace(self) -> Fraction | None:
        """Picoseconds of an iteration."""
        timeline = simulate_transfers(self.program, self.times, self.transfers)
        return timeline_picoseconds(timeline)


def _own_run(plan: SimulatedPlan) -> _Run:
    timeline = plan.timeline
    return _Run(timeline.program, timeline.times, timeline.transfers.without_contention())


def _one_change(before: SimulatedPlan, after: SimulatedPlan, times: _Times) -> Attribution | None:
    """None where the plans have no operations in common. Raises `InvalidInput` for lacking times.

    A recomputation that takes no time changes nothing, so both orders are given it where one has.
    """
    first, second = _own_run(before), _own_run(after)
    one, other = first.program, second.program
    if laid_out(one) != laid_out(other):
        return None
    orders = before.resolved.plan.schedule.order, after.resolved.plan.schedule.order
    one = with_edges(one, one.stage_edges, _either(one, other), orders[0])
    across = with_edges(one, other.stage_edges, one.recompute, orders[0])
    other = with_edges(other, one.stage_edges, _either(other, one), orders[1])
    found: dict[Cause, Fraction] = {}
    for cause, run in (
        (Cause.COMPUTE, _Run(one, second.times, first.transfers)),
        (Cause.TRANSFER, _Run(across, first.times, second.transfers)),
        (Cause.ORDER, None if _same(one, other) else _Run(other, first.times, first.transfers)),
    ):
        pace = times.first if run is None else run.pace()
        if pace is None:
            return None
        found[cause] = pace - times.first
    found[Cause.CONTENTION] = times.contention
    found[Cause.INTERACTION] = times.difference - sum(found.values(), Fraction(0))
    first = replace(first, program=one)
    return Attribution(
        difference=times.difference,
        effects=found,
        method=AttributionMethod.ONE_CHANGE,
        stages=_alone(_exchanged_stages(first, second), times.first),
        edges=_alone(_exchanged_edges(first, second), times.first),
    )


def laid_out(program: Program) -> tuple[object, ...]:
    """What two programs must share to run with each other's times."""
    return program.stages, program.microbatches, program.stage_ranks.tolist()


def _either(program: Program, other: Program) -> RecomputeMode:
    none = program.recompute is RecomputeMode.NONE
    return other.recompute if none else program.recompute


def _same(one: Program, other: Program) -> bool:
    """Whether both run the same operations in the same order, and are drained or not alike."""
    if one is other:
        return True
    updates = [schedule_family(program.schedule).update for program in (one, other)]
    names = ("rank_offsets", "kind", "stage", "microbatch", "backward_stage")
    return updates[0] is updates[1] and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def _alone(runs: Mapping[Key, tuple[int, _Run]], first: Fraction) -> dict[Key, Fraction]:
    """What each change does by itself, of those that change most."""
    most = sorted(runs, key=lambda key: -runs[key][0])[:MAX_ALONE]
    paces = {key: runs[key][1].pace() for key in sorted(most)}
    return {key: pace - first for key, pace in paces.items() if pace is not None}


def _exchanged_stages(first: _Run, second: _Run) -> dict[int, tuple[int, _Run]]:
    """For each stage whose times differ by how much, and the first run with those of the second."""
    needed = {TIMES_OF_KIND[kind] for kind in operation_kinds(first.program)}
    given = [run.times.given for run in (first, second)]
    if "forward_backward" in needed and len({"forward_backward" in of for of in given}) > 1:
        return {}  # a pair is timed as one by one plan only
    names = [name for name in given[0] if name in needed and name in given[1]]
    if "forward_backward" in needed:  # and where no pair is timed it is the sum of its two
        names = [name for name in given[0] if name in given[1]]
    changed: dict[int, int] = {}
    for name in names:
        by = np.abs(given[1][name] - given[0][name]).sum(axis=-1)
        for stage in np.flatnonzero(by).tolist():
            changed[stage] = changed.get(stage, 0) + int(by[stage])
    return {
        stage: (
            by,
            replace(
                first,
                times=replace(
                    first.times,
                    **{
                        name: _with_rows(given[0][name], given[1][name], [stage], [stage])
                        for name in names
                    },
                ),
            ),
        )
        for stage, by in changed.items()
    }


def _exchanged_edges(first: _Run, second: _Run) -> dict[tuple[int, int], tuple[int, _Run]]:
    """The same for transfers; a pair of stages has an edge for each direction of its schedule."""
    places: list[dict[tuple[int, int], list[int]]] = [{}, {}]
    for found, run in zip(places, (first, second), strict=True):
        for number, edge in enumerate(run.program.stage_edges):
            found.setdefault((edge.source, edge.target), []).append(number)
    runs = {}
    for pair, rows in places[0].items():
        others = places[1].get(pair, [])
        if len(others) != len(rows):
            continue
        there, back = (
            _with_rows(of_first, of_second, rows, others)
            for of_first, of_second in (
                (first.transfers.forward, second.transfers.forward),
                (first.transfers.backward, second.transfers.backward),
            )
        )
        by = int(
            np.abs(there - first.transfers.forward).sum()
            + np.abs(back - first.transfers.backward).sum()
        )
        if by:
            transfers = Transfers(first.transfers.mode, there, back)
            runs[pair] = by, replace(first, transfers=transfers)
    return runs


def _with_rows(
    table: Int64Array, other: Int64Array, rows: Sequence[int], others: Sequence[int]
) -> Int64Array:
    """(rows, microbatches or 1) of a table, some of its rows those of another."""
    width = max(table.shape[-1], other.shape[-1])
    mixed = np.broadcast_to(table, (len(table), width)).copy()
    mixed[list(rows)] = other[list(others)]
    return mixed


def _own_splits(before: SimulatedPlan, after: SimulatedPlan, times: _Times) -> Attribution | None:
    """None for a pipeline that is never drained: its makespan is not its iteration."""
    if not (is_drained(before) and is_drained(after)):
        return None
    first, second = (measure_bubble(plan.timeline) for plan in (before, after))
    effects = {
        Cause.COMPUTE: second.ideal
        + second.excess.imbalance
        - first.ideal
        - first.excess.imbalance,
        Cause.TRANSFER: second.excess.transfer - first.excess.transfer,
        Cause.ORDER: second.excess.structural - first.excess.structural,
        Cause.CONTENTION: second.excess.contention - first.excess.contention,
        Cause.INTERACTION: Fraction(0),
    }
    return Attribution(times.difference, effects, AttributionMethod.OWN_SPLITS, {}, {})
