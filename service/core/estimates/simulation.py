"""From a resolved plan to its simulated timeline."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.errors import InvalidInput
from service.core.estimates.activations import activation_deltas
from service.core.estimates.links import plan_links
from service.core.estimates.order_costs import order_costs
from service.core.estimates.work import check_link_work, expert_work, link_work
from service.core.plans.plan import ResolvedPlan, Statement
from service.core.plans.schedule import has_backward, pair_mode, plan_family, plan_shape
from service.core.schedules.build import build_program
from service.core.schedules.explicit import has_recompute
from service.core.schedules.order_costs import OrderCosts
from service.core.schedules.program import OpKind, Program, RecomputeMode
from service.core.schedules.stage_times import StageTimes, operation_durations, operation_kinds
from service.core.schedules.timeline import Timeline, simulate_together
from service.core.schedules.transfers import TransferMode, Transfers
from service.core.schedules.zb_auto import BY_HAND
from service.core.topology.cluster import Link

__all__ = [
    "SimulatedPlan",
    "late_work",
    "plan_program",
    "represented",
    "represented_of_order",
    "simulate_plan",
    "simulate_plans",
]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedPlan:
    """A resolved plan and one run of its schedule; every projection reads these two.

    `links` are those of the timeline by their numbers, none but in link mode.
    """

    resolved: ResolvedPlan
    timeline: Timeline
    links: tuple[Link, ...] = ()

    @property
    def has_backward(self) -> bool:
        """Whether the schedule runs backwards at all."""
        return has_backward(self.resolved.plan)


def simulate_plan(resolved: ResolvedPlan, *, replays: int = 0) -> SimulatedPlan:
    """Build (or find) the plan's program and run it once in the plan's transfer mode.

    All replicas run the same times, so one pipeline stands for them. Raises `InvalidInput` for a
    schedule that is not legal with these counts, and for times the kernel can't represent, and
    `WorkBudgetExceeded` where queues on links are too much work; `replays` are further runs that a
    request asks for.
    """
    (outcome,) = simulate_plans([resolved], replays=replays)
    if isinstance(outcome, InvalidInput):
        raise outcome
    return outcome


def simulate_plans(
    resolved: Sequence[ResolvedPlan], *, replays: int = 0
) -> list[SimulatedPlan | InvalidInput]:
    """Each plan run once, or what is wrong with it; plans that share a program are run together."""
    outcomes: dict[int, SimulatedPlan | InvalidInput] = {}
    of_program: dict[Program, list[int]] = {}
    for index, one in enumerate(resolved):
        try:
            of_program.setdefault(plan_program(one), []).append(index)
        except InvalidInput as error:
            outcomes[index] = error
    for program, members in of_program.items():
        together = _timelines(program, [resolved[index] for index in members], replays)
        outcomes |= zip(members, together, strict=True)
    return [outcomes[index] for index in range(len(resolved))]


def late_work(simulated: SimulatedPlan) -> int:
    """The work of an estimate that is known only once its documents are read, in units.

    The turns of messages on links, and the runs of its experts.
    """
    return link_work(simulated.timeline.links).total + expert_work(simulated.resolved.moe)


def _timelines(
    program: Program, resolved: Sequence[ResolvedPlan], replays: int
) -> list[SimulatedPlan | InvalidInput]:
    try:
        charged = [_charged(one) for one in resolved]
        times = [_stage_times(one) for one in resolved]
        cases = [(time, transfers) for time, (transfers, _) in zip(times, charged, strict=True)]
        for one, (time, transfers) in zip(resolved, cases, strict=True):
            if transfers.links is not None:
                links = transfers.links.on(program, operation_durations(program, time))
                check_link_work(one.plan, links, replays=replays)
        timelines = simulate_together(program, cases)
    except InvalidInput as error:
        if len(resolved) == 1:
            return [error]
        # Which of them it was is found by running each alone.
        return [outcome for one in resolved for outcome in _timelines(program, [one], replays)]
    return [
        SimulatedPlan(one, timeline, links)
        for one, timeline, (_, links) in zip(resolved, timelines, charged, strict=True)
    ]


def plan_program(resolved: ResolvedPlan) -> Program:
    """Build (or find) the order of a plan, without simulating it.

    Raises `InvalidInput` for a schedule that is not legal with these counts.
    """
    if not plan_family(resolved.plan).follows_costs:
        return _build(resolved)
    edges = tuple(boundary.edge for boundary in resolved.boundaries)
    times, both_ways = _stage_times(resolved), _both_ways(resolved)
    costs = order_costs(edges, times, both_ways, activation_deltas(resolved))
    best = _build(resolved, costs)
    blocking = resolved.transfer_mode is TransferMode.BLOCKING
    if costs is None or not (blocking or resolved.sizes.count > 1):
        return best
    # That order was made for the means of microbatches that differ, and as if no send held its
    # rank. It is held against those by hand with the times themselves, and with such sends; on
    # links transfers are alone here.
    programs = [best, *(_build(resolved, replace(costs, taken=i)) for i in range(len(BY_HAND)))]
    mode = TransferMode.BLOCKING if blocking else TransferMode.LATENCY
    transfers = Transfers(mode, *both_ways)
    makespans = [
        int(transfers.run(program, operation_durations(program, times)).makespan)
        for program in programs
    ]
    return programs[makespans.index(min(makespans))]


def _build(resolved: ResolvedPlan, costs: OrderCosts | None = None) -> Program:
    plan = resolved.plan
    edges = tuple(boundary.edge for boundary in resolved.boundaries)
    return build_program(
        plan.schedule.kind,
        plan.degrees.pipeline,
        plan.workload.microbatches,
        chunks_per_rank=plan.schedule.chunks_per_rank,
        group_size=plan.schedule.group_size,
        pair_mode=pair_mode(plan),
        recompute=_recompute_mode(resolved),
        stage_edges=edges,
        order=plan.schedule.order,
        memory_limit_activations=plan.schedule.memory_limit_activations,
        costs=costs,
    )


def _charged(resolved: ResolvedPlan) -> tuple[Transfers, tuple[Link, ...]]:
    """The transfers in the plan's mode, and the links that they are over."""
    if resolved.transfer_mode is TransferMode.LINK:
        found = plan_links(resolved)
        return Transfers.over_links(found.transfers), found.links
    return Transfers(resolved.transfer_mode, *_both_ways(resolved)), ()


def _both_ways(resolved: ResolvedPlan) -> tuple[Int64Array, Int64Array]:
    """Picoseconds of each boundary's slowest rank pair alone."""
    table = resolved.sizes.table
    return (
        table([boundary.forward_picoseconds for boundary in resolved.boundaries]),
        table([boundary.backward_picoseconds for boundary in resolved.boundaries]),
    )


def _stage_times(resolved: ResolvedPlan) -> StageTimes:
    """Kinds that are not known on every stage are left out: where they are run that is a fault."""

    def every(field: str) -> Int64Array | None:
        found = [getattr(stage, field) for stage in resolved.stages]
        return None if None in found else resolved.sizes.table(found)

    table = resolved.sizes.table
    return StageTimes(
        forward=table([stage.forward_picoseconds for stage in resolved.stages]),
        backward=table([stage.backward_picoseconds for stage in resolved.stages]),
        recompute=table([stage.recompute_picoseconds for stage in resolved.stages]),
        backward_input=every("backward_input_picoseconds"),
        backward_weight=every("backward_weight_picoseconds"),
        forward_backward=every("pair_picoseconds"),
    )


def _recompute_mode(resolved: ResolvedPlan) -> RecomputeMode:
    written = has_recompute(plan_shape(resolved.plan))
    if not written and not any(stage.recompute_picoseconds for stage in resolved.stages):
        return RecomputeMode.NONE
    if resolved.plan.schedule.recompute_before_gradient:
        return RecomputeMode.BEFORE_GRADIENT
    return RecomputeMode.AFTER_GRADIENT


def represented_of_order(resolved: ResolvedPlan, program: Program) -> Statement:
    """The operations that whatever follows from the order of a plan includes."""
    names = ["forward"]
    if has_backward(resolved.plan):
        if program.recompute is not RecomputeMode.NONE:
            names.append("recompute")
        names.append("backward")
    kinds = operation_kinds(program)
    how = "one after another"
    if OpKind.BACKWARD_INPUT in kinds:
        how += ", backwards in two halves where the schedule splits them"
    if OpKind.FORWARD_BACKWARD in kinds:
        how += ", fused pairs as one"
    operations = f"{', '.join(names)} of every microbatch on every stage, {how}"
    return Statement("operations", f"{operations} in the order of {program.schedule}")


def represented(simulated: SimulatedPlan) -> tuple[Statement, ...]:
    """The operations and resources that the numbers of a simulated plan include."""
    transfers = {
        TransferMode.LATENCY: (
            "each boundary's transfer delays its consumer by its latency and holds nobody"
        ),
        TransferMode.BLOCKING: (
            "each boundary's transfer delays its consumer by its latency and holds its sender"
        ),
        TransferMode.LINK: (
            "each boundary's transfer occupies the links of its rank pairs, on which transfers of "
            "all boundaries, ways and replicas queue, and delays its consumer"
        ),
    }[simulated.timeline.mode]
    links = simulated.timeline.links
    exchanges = (
        "what experts exchange during an operation, in all layers and groups of its stage, "
        "occupies links too: it waits there while transfers pass and exchanges of other stages "
        "are before it, and makes its operation longer by that"
    )
    return (
        represented_of_order(simulated.resolved, simulated.timeline.program),
        Statement("devices", "each rank runs one operation at a time"),
        Statement("transfers", transfers),
        *(() if links is None or not links.own else (Statement("exchanges", exchanges),)),
    )
