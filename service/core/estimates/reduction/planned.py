"""The collectives of a plan that can be told and priced, and why others can't."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.amounts import Amount
from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.estimates.reduction.parts import HeldBytes, Part, PartKind, reduced_parts
from service.core.estimates.reduction.pricing import PricedPart, Step, price_parts
from service.core.estimates.reduction.timing import Task
from service.core.plans import iteration_statements as said
from service.core.plans.gradient_reduction import (
    GradientReduction,
    ReductionAlgorithm,
    TimeOrigin,
    picoseconds_of,
)
from service.core.plans.payloads import MAX_BYTES
from service.core.plans.plan import ResolvedPlan, Statement
from service.core.plans.reduction_work import has_replicas, is_priced
from service.core.plans.schedule import has_backward
from service.core.plans.training import OptimizerSharding
from service.core.topology.collectives import NoPath
from service.core.units import MAX_SECONDS, to_seconds

__all__ = ["PlannedPart", "PlannedReductions", "planned_reductions"]

_TOO_MUCH = "its paths take long to find, and the plan does not ask for them in training"


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPart:
    """The weights of one kind of a stage, and what the collectives among their ranks take.

    `priced` is None where the plan gives the time, which is then `given_picoseconds`.
    """

    part: Part
    priced: PricedPart | None
    given_picoseconds: int | None = None
    layers: tuple[tuple[int, Amount], ...] = ()  # as in a `Task`

    @property
    def origin(self) -> TimeOrigin:
        """Where its times come from."""
        return TimeOrigin.GIVEN if self.priced is None else TimeOrigin.COMPUTED

    def task(self, step: Step) -> Task | None:
        """The collective of one step; None where it has none."""
        stage, part = self.part.held.stage, self.part
        if self.priced is None:
            if step is Step.GATHER or self.given_picoseconds is None:
                return None
            return Task(stage, part.pipeline_ranks, part.groups, 0, self.given_picoseconds)
        if step not in self.priced.steps:
            return None
        return Task(
            stage,
            part.pipeline_ranks,
            part.groups,
            self.priced.message_bytes(step),
            self.priced.latency_picoseconds,
            self.priced.traffic.seconds_per_byte,
            self.layers if step is Step.REDUCTION else (),
        )

    def bound(self, step: Step) -> int:
        """The least picoseconds of a step, rounded down; a given time is its own bound."""
        if self.priced is not None:
            return self.priced.bound(step)
        return (self.given_picoseconds or 0) if step is Step.REDUCTION else 0


@dataclass(frozen=True, slots=True, eq=False)
class PlannedReductions:
    """All parts that are told, and what an answer has to say of them.

    `is_needed` says whether any ranks hold the same weights at all, `complete` whether nothing of
    that is left out.
    """

    reduction: GradientReduction
    parts: tuple[PlannedPart, ...]
    is_needed: bool
    complete: bool
    assumptions: tuple[Statement, ...] = ()
    not_represented: tuple[Statement, ...] = ()


def planned_reductions(
    resolved: ResolvedPlan, held: Sequence[tuple[HeldBytes, ...] | None]
) -> PlannedReductions:
    """What the ranks of the plan that hold the same weights send one another once an iteration.

    Raises `InvalidInput` for reductions of more than 2**53 - 1 bytes a rank or `MAX_SECONDS`, and
    what `price_parts` does; of a plan that says nothing of training they are left out instead.
    """
    plan = resolved.plan
    training = plan.training
    reduction = GradientReduction()
    sharding = OptimizerSharding.NONE
    if training is not None:
        reduction = training.gradient_reduction or reduction
        sharding = training.optimizer_sharding
    if not has_replicas(plan):
        given = reduction.seconds is not None and has_backward(plan)
        unused = (said.NO_REPLICAS,) if given else ()
        return PlannedReductions(reduction, (), False, True, unused)
    if reduction.seconds is not None:
        parts = tuple(
            PlannedPart(part, None, picoseconds_of(reduction.seconds, part.held.stage))
            for stage in resolved.stages
            for part in reduced_parts(resolved, [_unknown(stage.stage)])
        )
        assumed = (said.given_reductions(len(parts)), said.reduction_begins(reduction.overlap))
        return PlannedReductions(reduction, parts, True, True, assumed)
    if resolved.cluster is None:
        return _unpriced(reduction, "the plan has no topology and gives no time")
    if not is_priced(plan):
        return _unpriced(reduction, _TOO_MUCH)
    unknown = [number for number, of_stage in enumerate(held) if of_stage is None]
    if len(unknown) == len(held):
        return _unpriced(reduction, "the parameters of the stages, or their types, are not given")
    sharded = sharding.splits_optimizer
    algorithm = reduction.algorithm or (
        ReductionAlgorithm.SHARDED if sharded else ReductionAlgorithm.RING
    )
    told = [one for of_stage in held for one in of_stage or ()]
    parts_found = reduced_parts(resolved, told)
    gathers = sharded and not sharding.splits_weights
    try:
        priced = price_parts(resolved, resolved.cluster, parts_found, algorithm, gathers=gathers)
    except WorkBudgetExceeded:
        if training is not None:
            raise
        return _unpriced(reduction, _TOO_MUCH)
    if isinstance(priced, NoPath):
        return _unpriced(
            reduction,
            f"no physical path joins {priced.source} and {priced.target}, which hold the same "
            "weights",
        )
    fault = _too_large(priced)
    if fault is not None:
        if training is not None:
            raise InvalidInput([fault])
        return _unpriced(reduction, fault.detail)
    left_out = [said.reduction_partly_unknown(len(unknown))] if unknown else []
    if sharding.splits_gradients:
        left_out.append(said.sharded_each_microbatch(weights=sharding.splits_weights))
    chosen = reduction.algorithm is None
    return PlannedReductions(
        reduction,
        tuple(PlannedPart(one.part, one, layers=_layers(resolved, one.part)) for one in priced),
        True,
        not unknown,
        (
            said.reduction_algorithm(algorithm, gathers=gathers, chosen=chosen),
            said.reduction_begins(reduction.overlap),
            *_rings(priced),
            said.REDUCTION_LINKS,
            *_shares(resolved, told),
            *_paths(priced),
        ),
        tuple(left_out),
    )


def _unpriced(reduction: GradientReduction, why: str) -> PlannedReductions:
    """Reductions that are needed and left out."""
    return PlannedReductions(reduction, (), True, False, (), (said.reduction_unknown(why),))


def _too_large(priced: Sequence[PricedPart]) -> Fault | None:
    """The first stage whose bytes or time are beyond what is counted, if any."""
    for one in priced:
        for step in one.steps:
            stage, size = one.part.held.stage, one.message_bytes(step)
            if size > MAX_BYTES:
                detail = f"a rank of stage {stage} reduces {size} bytes; at most {MAX_BYTES}"
                return Fault(FaultCode.OUT_OF_RANGE, ("training",), f"{detail} are counted")
            seconds = to_seconds(one.alone_picoseconds(step))
            if seconds > MAX_SECONDS:
                detail = f"the gradients of stage {stage} take {seconds:g} s on their paths"
                detail += f"; at most {MAX_SECONDS:g} s are counted"
                return Fault(FaultCode.OUT_OF_RANGE, ("topology",), detail)
    return None


def _layers(resolved: ResolvedPlan, part: Part) -> tuple[tuple[int, Amount], ...]:
    """Bytes and times of the gradients of each layer; none where they are not known."""
    sizes = part.held.gradient_bytes_by_layer
    times = resolved.stages[part.held.stage].layer_gradient_picoseconds
    if sizes is None or times is None:
        return ()
    return tuple(zip(sizes, times, strict=True))


def _unknown(stage: int) -> HeldBytes:
    """Dense weights of a stage of which nothing but their ranks matters."""
    return HeldBytes(stage, PartKind.DENSE, 0, 0, 0, None)


def _shares(resolved: ResolvedPlan, held: Sequence[HeldBytes]) -> tuple[Statement, ...]:
    degrees = resolved.plan.degrees
    experts = any(one.kind is PartKind.EXPERT for one in held)
    if degrees.tensor > 1 or (experts and degrees.expert * degrees.expert_tensor > 1):
        return (said.EQUAL_SHARES,)
    return ()


def _rings(priced: Sequence[PricedPart]) -> tuple[Statement, ...]:
    most = max((one.traffic.rings for one in priced), default=0)
    return (said.reduction_rings(most),) if most > 1 else ()


def _paths(priced: Sequence[PricedPart]) -> tuple[Statement, ...]:
    rates = sum(one.traffic.without_effective for one in priced)
    latencies = sum(one.traffic.without_latency for one in priced)
    hops = sum(one.traffic.hops for one in priced)
    return (said.reduction_paths(hops, rates, latencies),) if rates or latencies else ()
