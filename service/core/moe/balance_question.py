"""What is asked of a routing: how it loads ranks, what a capacity drops, what would be better."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.moe.balance import EXACT_SLOTS, ExpertGroup, group_faults
from service.core.moe.capacity import capacity_faults
from service.core.moe.overflow import Capacity, OverflowPolicy
from service.core.moe.packing import most_exchanges
from service.core.moe.placement import contiguous, given
from service.core.moe.routing import Routing
from service.core.moe.served import ExpertPlacement
from service.core.moe.settings import ReplicaSplitting
from service.core.moe.skews import check_skew

__all__ = [
    "MAX_BALANCE_UNITS",
    "BalanceQuestion",
    "balance_faults",
    "balance_units",
    "check_balance_work",
    "exact_steps",
    "layers_asked",
    "present_placement",
    "tokens_of_ranks",
]

# In operation-runs of 60 ns: some ten seconds.
MAX_BALANCE_UNITS = 160_000_000
# Of a source and a slot under one capacity: admitted and served.
_CELL_UNITS = 1
# And where tokens are rerouted, level by level, in two orders.
_REROUTED_UNITS = 8
# Of a choice of a listed token, which is read and counted.
_CHOICE_UNITS = 1
# Of a slot that a proposal packs; packing then looks at so many exchanges in the time of a unit.
_SLOT_UNITS = 200
_EXCHANGES_PER_UNIT = 4
# Of a step in the search for the best placement; all layers together have so many.
_STEP_UNITS = 250
_ALL_STEPS = 160_000
_STEPS_OF_LAYER = 20_000


@dataclass(frozen=True, slots=True)
class BalanceQuestion:
    """Experts on `ranks` ranks that each bring tokens, `ranks_per_node` of them to a host.

    `experts_by_rank` is the placement that there is, contiguous where it is None. Each rank has
    `tokens_per_rank`, or where that is None its share of what was recorded. Under each of `factors`
    `swept` has its capacity. Advice has no more slots than experts, and `extra_slots` more.
    """

    ranks: int
    ranks_per_node: int | None = None
    experts_by_rank: tuple[tuple[int, ...], ...] | None = None
    splitting: ReplicaSplitting = ReplicaSplitting.EVEN
    tokens_per_rank: int | None = None
    capacity: Capacity = field(default_factory=lambda: Capacity(OverflowPolicy.DROPLESS))
    swept: Capacity | None = None
    factors: tuple[float, ...] = ()
    extra_slots: int = 0
    expert_groups: int | None = None
    layers: tuple[int, ...] | None = None

    def groups(self, experts: int) -> tuple[ExpertGroup, ...]:
        """For which advice is given: without replicas, and with them where they are asked for."""
        plain = ExpertGroup(self.ranks, experts, self.ranks_per_node, self.expert_groups)
        if not self.extra_slots:
            return (plain,)
        return plain, replace(plain, slots=experts + self.extra_slots)


def layers_asked(routing: Routing, question: BalanceQuestion) -> tuple[int, ...]:
    """Which layers an answer has; a skew, the same in each, has one."""
    return question.layers or routing.layers or (0,)


def present_placement(question: BalanceQuestion, experts: int) -> ExpertPlacement:
    """Where the experts stand. Raises InvalidInput, places at `placement`."""
    if question.experts_by_rank is None:
        return contiguous(experts, question.ranks)
    try:
        return given(experts, question.ranks, question.experts_by_rank)
    except InvalidInput as refused:
        raise InvalidInput(fault.under("placement") for fault in refused.faults) from refused


def balance_faults(routing: Routing, question: BalanceQuestion) -> list[Fault]:
    """Every fault of a question about this routing, under the names of a request's fields."""
    faults = [*_group_faults(routing, question), *_capacity_faults(routing, question)]
    try:
        present_placement(question, routing.experts)
    except InvalidInput as refused:
        faults += refused.faults
    for place, layer in enumerate(question.layers or ()):
        if routing.skew is None and layer not in routing.layers:
            own = ", ".join(map(str, routing.layers[:8]))
            detail = f"the routing has no layer {layer}; it has {len(routing.layers)}: {own}"
            faults.append(Fault(FaultCode.UNKNOWN_REFERENCE, ("layers", place), detail))
    if routing.skew is not None:
        skewed = check_skew(
            routing.skew, experts=routing.experts, top_k=routing.top_k, ranks=question.ranks
        )
        faults += [Fault(fault.code, ("ranks",), fault.detail) for fault in skewed]
        if question.tokens_per_rank is None:
            detail = "a skew was not recorded from tokens: say how many each rank brings"
            faults.append(Fault(FaultCode.MISSING_FIELD, ("tokens_per_rank",), detail))
    return faults


def _group_faults(routing: Routing, question: BalanceQuestion) -> Iterator[Fault]:
    plain, *more = question.groups(routing.experts)
    yield from group_faults(plain, routing.experts)
    for group in more:
        for fault in group_faults(group, routing.experts):
            if fault.path == ("slots",):
                yield replace(fault, path=("extra_slots",))


def _capacity_faults(routing: Routing, question: BalanceQuestion) -> Iterator[Fault]:
    capacity, swept = question.capacity, question.swept
    if routing.top_k is None:
        told = (
            ("tokens_per_rank", question.tokens_per_rank is not None),
            ("overflow", capacity.overflow is not OverflowPolicy.DROPLESS),
            ("capacity_factors", bool(question.factors)),
        )
        detail = (
            "the routing has loads in a unit that is no number of tokens (its top_k is absent): "
            "they can be balanced, and no capacity is a share of them"
        )
        yield from (
            Fault(FaultCode.NOT_SUPPORTED, (name,), detail) for name, is_told in told if is_told
        )
        return
    yield from capacity_faults(capacity)
    if swept is None or swept == capacity:
        return
    for fault in capacity_faults(swept):
        if not swept.limits:
            detail = f"{swept.overflow.value} has no capacity, so no factor changes anything"
            yield Fault(FaultCode.EXCLUSIVE_FIELDS, ("capacity_factors",), detail)
            return
        if fault not in capacity_faults(capacity):
            yield fault


def exact_steps(routing: Routing, question: BalanceQuestion) -> int:
    """How many steps the search for the best placement has, for each layer and number of slots."""
    searches = [one for one in question.groups(routing.experts) if one.slots <= EXACT_SLOTS]
    many = len(searches) * len(layers_asked(routing, question))
    return min(_STEPS_OF_LAYER, _ALL_STEPS // many) if many else 0


def balance_units(routing: Routing, question: BalanceQuestion) -> int:
    """Operation-runs that an answer takes, at most; of a question without faults."""
    layers = layers_asked(routing, question)
    slots = sum(map(len, question.experts_by_rank or ())) or routing.experts
    cells = question.ranks * (routing.experts + slots)
    ways = [
        question.capacity,
        question.capacity,
        *([question.swept or question.capacity] * len(question.factors)),
    ]
    each = sum(
        _REROUTED_UNITS if way.overflow is OverflowPolicy.REROUTE else _CELL_UNITS for way in ways
    )
    tokens = question.ranks * (question.tokens_per_rank or 0)
    read = sum(
        _CHOICE_UNITS * max(tokens * (routing.top_k or 0), record.choices.size)
        for (layer, _), record in routing.records.items()
        if layer in layers and record.choices is not None
    )
    advised = sum(
        3 * (_SLOT_UNITS * group.slots + _exchange_units(group))
        + _STEP_UNITS * (group.slots <= EXACT_SLOTS) * exact_steps(routing, question)
        for group in question.groups(routing.experts)
    )
    return len(layers) * (routing.steps * cells * each + advised) + read


def _exchange_units(group: ExpertGroup) -> int:
    return most_exchanges(group.slots, group.ranks) // _EXCHANGES_PER_UNIT


def check_balance_work(routing: Routing, question: BalanceQuestion) -> None:
    """Raises WorkBudgetExceeded where an answer takes more than one request may."""
    units = balance_units(routing, question)
    if units > MAX_BALANCE_UNITS:
        layers = len(layers_asked(routing, question))
        detail = (
            f"{layers} layers in {routing.steps} steps on {question.ranks} ranks are {units} units "
            f"of work, one request may take {MAX_BALANCE_UNITS}: ask for fewer layers or factors"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("layers",), detail)])


def tokens_of_ranks(recorded: Sequence[int], question: BalanceQuestion) -> npt.NDArray[np.int64]:
    """(ranks,) tokens of each: as stated, else those of the sources, else all of them divided."""
    if question.tokens_per_rank is not None:
        return np.full(question.ranks, question.tokens_per_rank, dtype=np.int64)
    if len(recorded) == question.ranks:
        return np.array(recorded, dtype=np.int64)
    each, more = divmod(sum(recorded), question.ranks)
    return each + (np.arange(question.ranks) < more).astype(np.int64)
