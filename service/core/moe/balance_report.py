"""How evenly a routing loads ranks, by layer and over all, and placements that do better."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.errors import InvalidInput, Statement
from service.core.moe.assignments import Assignments
from service.core.moe.balance import Advice, advise, even_loads
from service.core.moe.balance_question import (
    BalanceQuestion,
    balance_faults,
    check_balance_work,
    exact_steps,
    layers_asked,
    present_placement,
    tokens_of_ranks,
)
from service.core.moe.capacity import admit, reroute_bounds
from service.core.moe.fates import Fates, all_fates, fates_of
from service.core.moe.imbalance import Imbalance, Tails, imbalance, rows_by_node, tails
from service.core.moe.overflow import OverflowPolicy
from service.core.moe.placement import shared_ranks, stands_near
from service.core.moe.routing import Routing, assignments, expert_loads
from service.core.moe.served import Admitted, ExpertPlacement
from service.core.moe.serving import serve
from service.core.moe.skews import uniform
from service.core.moe.sweep import SweepPoint, sweep, together

__all__ = ["BalanceReport", "LayerReport", "SlotAdvice", "answer_balance"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SlotAdvice:
    """Advice for so many slots, and how the same load lies on the present placement."""

    slots: int
    present: Imbalance
    advice: Advice


@dataclass(frozen=True, slots=True, eq=False)
class LayerReport:
    """One layer. `experts`, `ranks` and `nodes` are of all steps together, `tails` of each rank in
    each step. `slowest` and `mean` sum the rows of the busiest rank and of a mean one over steps,
    as ranks wait for one another in each. `step` is the one with the busiest rank of all.

    `uniform_slowest` is `slowest` of the same tokens choosing evenly, under the same capacity.
    `near` is `ranks` where rerouted tokens go to their own host first. `fates` is None of loads in
    a unit that is no number of tokens.
    """

    layer: int
    experts: Imbalance
    ranks: Imbalance
    nodes: Imbalance | None
    near: Imbalance | None
    tails: Tails[float]
    step: int
    slowest: float
    mean: float
    uniform_slowest: float
    fates: Fates | None
    capacity_rows: int | None
    sweep: tuple[SweepPoint, ...]
    advice: tuple[SlotAdvice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BalanceReport:
    """All layers; `tails`, `fates` and `sweep` are over all of them."""

    placement: ExpertPlacement
    layers: tuple[LayerReport, ...]
    tails: Tails[float]
    fates: Fates | None
    sweep: tuple[SweepPoint, ...]
    notes: tuple[Statement, ...]
    warnings: tuple[Statement, ...]


def answer_balance(routing: Routing, question: BalanceQuestion) -> BalanceReport:
    """The report. Raises InvalidInput with every fault of the question, WorkBudgetExceeded."""
    faults = balance_faults(routing, question)
    if faults:
        raise InvalidInput(faults)
    check_balance_work(routing, question)
    placement = present_placement(question, routing.experts)
    asked = _Asked(routing, question, placement)
    layers = [asked.layer(number) for number in layers_asked(routing, question)]
    fates = None
    if routing.top_k is not None:
        fates = all_fates(one.fates for one in layers if one.fates is not None)
    every_rank: FloatArray = np.concatenate(asked.rank_rows)
    return BalanceReport(
        placement=placement,
        layers=tuple(layers),
        tails=tails(every_rank),
        fates=fates,
        sweep=together([one.sweep for one in layers]),
        notes=tuple(dict.fromkeys(asked.notes)),
        warnings=_warnings(placement),
    )


class _Asked:
    """A question, and what was found while answering it."""

    def __init__(
        self, routing: Routing, question: BalanceQuestion, placement: ExpertPlacement
    ) -> None:
        self.routing, self.question, self.placement = routing, question, placement
        per_node = question.ranks_per_node or question.ranks
        self.node_of_rank = np.arange(question.ranks) // per_node
        self.steps = exact_steps(routing, question)
        self.rank_rows: list[FloatArray] = []
        self.notes: list[Statement] = []

    def layer(self, number: int) -> LayerReport:
        if self.routing.top_k is None:
            found = _Layer([self._loads(number, step) for step in range(self.routing.steps)])
        else:
            found = _Layer([self._step(number, step) for step in range(self.routing.steps)])
        rows = found.rank_rows
        self.rank_rows.append(rows.reshape(-1))
        busiest = rows.max(axis=1)
        summed = rows.sum(axis=0)
        nodes = None
        if self.question.ranks_per_node is not None:
            nodes = imbalance(rows_by_node(summed, self.node_of_rank))
        return LayerReport(
            layer=number,
            experts=imbalance(found.asked),
            ranks=imbalance(summed),
            nodes=nodes,
            near=imbalance(found.near) if found.near is not None else None,
            tails=tails(rows),
            step=self.routing.step_numbers[int(np.argmax(busiest))],
            slowest=float(busiest.sum()),
            mean=float(rows.mean(axis=1).sum()),
            uniform_slowest=found.uniform_slowest,
            fates=found.fates,
            capacity_rows=found.capacity_rows,
            sweep=found.sweep,
            advice=self._advice(found.computed),
        )

    def _advice(self, loads: Int64Array) -> tuple[SlotAdvice, ...]:
        present = imbalance(even_loads(loads, self.placement))
        return tuple(
            SlotAdvice(group.slots, present, advise(loads, group, steps=self.steps))
            for group in self.question.groups(self.routing.experts)
        )

    def _loads(self, number: int, step: int) -> "_Step":
        """In the routing's own unit, divided evenly: whose they are is not known."""
        loads = expert_loads(self.routing, number, step)
        even = even_loads(np.full(len(loads), loads.sum() / len(loads)), self.placement)
        rows = even_loads(loads, self.placement)
        return _Step(loads, loads, rows, float(even.max()), None, None, None, ())

    def _step(self, number: int, step: int) -> "_Step":
        question = self.question
        recorded: Sequence[int] = ()
        if self.routing.skew is None:
            record = self.routing.records[number, step]
            recorded = record.tokens(self.routing.top_k or 1).tolist()
        routed = assignments(self.routing, number, step, tokens_of_ranks(recorded, question))
        self.notes += routed.notes
        # Counts say all that is asked here, and take less than what each token chose.
        asked = replace(routed.assignments, choices=None)
        admitted = admit(asked, question.capacity)
        even = uniform(asked.tokens, asked.top_k, asked.experts)
        near = None
        if question.capacity.overflow is OverflowPolicy.REROUTE and question.ranks_per_node:
            stands = stands_near(self.placement, self.node_of_rank)
            near = self._rows(reroute_bounds(asked, question.capacity, stands)[1], asked)
        points = sweep(
            asked,
            question.swept or question.capacity,
            question.factors,
            self.placement,
            question.splitting,
            node_of_source=self.node_of_rank,
        )
        return _Step(
            asked.counts.sum(axis=0),
            admitted.wire.sum(axis=0),
            self._rows(admitted, asked),
            float(self._rows(admit(even, question.capacity), even).max()),
            near,
            fates_of(admitted, asked),
            admitted.capacity,
            points,
        )

    def _rows(self, admitted: Admitted, asked: Assignments) -> FloatArray:
        served = serve(
            admitted,
            asked,
            self.placement,
            self.question.splitting,
            node_of_source=self.node_of_rank,
        )
        return served.rank_rows.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One layer in one step: loads (E,) asked for and computed, rows (ranks,)."""

    asked: Int64Array
    computed: Int64Array
    rows: FloatArray
    uniform_slowest: float
    near: FloatArray | None
    fates: Fates | None
    capacity_rows: int | None
    sweep: tuple[SweepPoint, ...]


class _Layer:
    """The steps of one layer together; rows are (steps, ranks)."""

    def __init__(self, steps: Sequence[_Step]) -> None:
        self.asked: Int64Array = np.sum([step.asked for step in steps], axis=0)
        self.computed: Int64Array = np.sum([step.computed for step in steps], axis=0)
        self.rank_rows: FloatArray = np.stack([step.rows for step in steps])
        self.uniform_slowest = sum(step.uniform_slowest for step in steps)
        near = [step.near for step in steps if step.near is not None]
        self.near: FloatArray | None = np.sum(near, axis=0) if near else None
        fates = [step.fates for step in steps if step.fates is not None]
        self.fates = all_fates(fates) if fates else None
        capacities = [step.capacity_rows for step in steps if step.capacity_rows is not None]
        self.capacity_rows = max(capacities, default=None)
        self.sweep = together([step.sweep for step in steps])


def _warnings(placement: ExpertPlacement) -> tuple[Statement, ...]:
    shared = shared_ranks(placement)
    if not shared:
        return ()
    expert, rank, number = shared[0]
    detail = f"rank {rank} has {number} replicas of expert {expert}, which spread no load"
    if len(shared) > 1:
        detail += f"; {len(shared)} pairs of an expert and a rank are like that"
    return (Statement("replicas_share_rank", detail),)
