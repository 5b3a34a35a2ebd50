"""The work of a calculation, known before it is done."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.plans.moe.inputs import uniform_inputs
from service.core.plans.moe.results import PlanMoe
from service.core.plans.moe.work import expert_units
from service.core.plans.placement import MAX_RANKS
from service.core.plans.plan import Plan, TiedParameters
from service.core.plans.reduction_work import reduction_paths
from service.core.plans.schedule import plan_family, plan_shape
from service.core.plans.workload import given_lists, is_routed
from service.core.schedules.cadence import MOST_PERIODIC_OPERATIONS
from service.core.schedules.catalogue import check_shape
from service.core.schedules.program_links import ProgramLinks
from service.core.schedules.shape import Backward
from service.core.schedules.simulated_pace import LINK_VISITS
from service.core.schedules.transfers import TransferMode

__all__ = [
    "BATCH_WORK_BUDGET",
    "INLINE_WORK_BUDGET",
    "Work",
    "check_batch",
    "check_link_work",
    "check_work",
    "expert_work",
    "link_work",
    "work_of",
]

# What one request may ask for and be answered at once, in operation-runs: a few seconds of one
# core at the most, building the program included.
INLINE_WORK_BUDGET = 32_000_000

# What the plans of one batch may ask for together. They are worked on some at a time, so that
# others have their turn in between.
BATCH_WORK_BUDGET = 2 * INLINE_WORK_BUDGET

# One timeline, three replays for the split of the idle time, two other microbatch counts of
# which the larger is twice as long (together 2.5 runs), one pass for the slack, rounded up.
_RUNS = 8

# The steady state is read off an order of a few microbatches a rank and some periods, and its
# operations are looked at one by one: about twelve times the cost of simulating them.
_STEADY_LEADS = 4
_STEADY_PERIODS = 5
_STEADY_RUNS = 12

# The critical path is followed step by step: about thirty times the cost of simulating a step. It
# has at most about the operations of one rank, all of them where there is one rank.
_PATH_STEP_RUNS = 30

# Searching a large cluster for one physical path costs about as much as so many operations. Each
# pair of ranks needs one there and one back.
_PATH_OPERATIONS = 4_000

# To place a rank and to write it into the answer costs as much as simulating so many operations.
_RANK_OPERATIONS = 200

# With queues on links: the timeline, two other microbatch counts, one pass for the slack, rounded
# up. An operation and its messages are two events, which cost about ten times what they do without.
_LINK_RUNS = 6
_LINK_RUN_COST = 2

# An order that is made by trying is made for three numbers of microbatches, together 3.5 times the
# operations, so about four times; four of its passes cost about as much as a run with its share of
# all that is read off it. So a pass counts once.

# Where microbatches differ, or sends hold their ranks, it is held against those that are made by
# hand: three programs more, each of which costs about as much to assemble as four runs.
_HANDMADE_RUNS = 12

# A number that a plan lists by microbatch is read and sorted into its size class, and where bytes
# differ each size is priced on the path of each pair of ranks.
_LISTED_OPERATIONS = 20
_PRICED_OPERATIONS = 100

# So many entries of matrices of experts and pairs of ranks cost as much as simulating an operation.
_EXPERT_UNITS = 6

# A plan whose tokens are routed is simulated once more with tokens that choose evenly, and what is
# shown of both (activations, memory, reductions, and the pace) is read off each by itself.
_EVEN_RUNS = 4
_EVEN_PACES = 2

# How far below the most microbatches that fit a number is looked for that the schedule allows too:
# schedules ask for multiples of the ranks or of groups.
_LEGAL_SEARCH = 1_024


@dataclass(frozen=True, slots=True)
class Work:
    """`operations` of one iteration, simulated `runs` times, and what comes beside them.

    `listed` are numbers by microbatch, `priced` sizes of messages that differ among them, `turns`
    what `link_work` counts.
    """

    operations: int
    runs: int
    steady_operations: int = 0
    paths: int = 0
    path_steps: int = 0
    ranks: int = 0
    listed: int = 0
    priced: int = 0
    turns: int = 0

    @property
    def total(self) -> int:
        """All of it, in operation-runs, which is what a budget is counted in."""
        return (
            self.operations * self.runs
            + self.path_steps * _PATH_STEP_RUNS
            + self.steady_operations * _STEADY_RUNS
            + self.paths * _PATH_OPERATIONS
            + self.ranks * _RANK_OPERATIONS
            + self.listed * _LISTED_OPERATIONS
            + self.priced * _PRICED_OPERATIONS
            + self.turns
        )

    def check(self, budget: int = INLINE_WORK_BUDGET) -> None:
        """Raise `WorkBudgetExceeded`, pointing at the largest part, when it is above the budget."""
        if self.total <= budget:
            return
        parts = [
            (
                self.operations * self.runs + self.path_steps * _PATH_STEP_RUNS,
                ("workload", "microbatches"),
                f"{self.operations} operations x {self.runs} runs: use fewer microbatches",
            ),
            (
                self.steady_operations * _STEADY_RUNS,
                ("parallelism", "pipeline"),
                f"{self.steady_operations} operations for the steady state: use fewer stages",
            ),
            (
                self.paths * _PATH_OPERATIONS,
                ("topology",),
                f"{self.paths} physical paths: use fewer ranks, or leave the topology out",
            ),
            (
                self.ranks * _RANK_OPERATIONS,
                ("parallelism",),
                f"{self.ranks} ranks: use fewer",
            ),
            (
                self.listed * _LISTED_OPERATIONS + self.priced * _PRICED_OPERATIONS,
                ("workload", "microbatches"),
                f"{self.listed} listed numbers, {self.priced} sizes of messages: let fewer differ",
            ),
            (
                self.turns,
                ("schedule", "transfer_mode"),
                f"{self.turns} for the turns of messages on links: use latency mode or fewer ranks",
            ),
        ]
        _, path, what = max(parts)
        detail = f"{what} (all of it is {self.total} units of work, one request may take {budget})"
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, path, detail)])


def check_batch(
    works: Iterable[Work], budget: int = BATCH_WORK_BUDGET, *, what: str = "plans"
) -> None:
    """Raise `WorkBudgetExceeded` when all of them together are above it.

    `what` they are is the list of the request that it points at.
    """
    totals = [work.total for work in works]
    if sum(totals) > budget:
        detail = (
            f"{len(totals)} {what} are {sum(totals)} units of work together, the largest "
            f"{max(totals)}; one request may take {budget}: send fewer of them at a time"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, (what,), detail)])


def check_work(plan: Plan, *, replays: int = 0, budget: int = INLINE_WORK_BUDGET) -> Work:
    """The work of a plan that is within the budget.

    Raises `WorkBudgetExceeded` with how many microbatches would be, where a number would.
    """
    return _check(plan, work_of(plan, replays=replays), replays, budget)


def check_link_work(
    plan: Plan,
    links: ProgramLinks | None,
    *,
    replays: int = 0,
    budget: int = INLINE_WORK_BUDGET,
) -> None:
    """The same once it is known who uses which link: with the turns of messages on links."""
    turns = link_work(links, replays=replays).turns
    _check(plan, replace(work_of(plan, replays=replays), turns=turns), replays, budget)


def _check(plan: Plan, work: Work, replays: int, budget: int) -> Work:
    try:
        work.check(budget)
    except WorkBudgetExceeded as exceeded:
        (fault,) = exceeded.faults
        raise WorkBudgetExceeded(
            [_with_remedy(fault, plan, work.turns, replays, budget)]
        ) from exceeded
    return work


def _with_remedy(fault: Fault, plan: Plan, turns: int, replays: int, budget: int) -> Fault:
    """The fault with what would fit: fewer microbatches, or a shorter order where it counts."""
    if plan.schedule.order is not None:
        words = sum(text.count(" ") + 1 for text in plan.schedule.order)
        detail = f"an order of {words} operations: {fault.detail}"
        return Fault(fault.code, ("schedule", "order"), detail)
    most = _most_microbatches(plan, turns, replays, budget)
    if most is None:
        return fault
    fits = f"{most} {'microbatch fits' if most == 1 else 'microbatches fit'}"
    if _queues(plan) and not turns:
        fits += ", fewer where their messages have many turns on links"
    return Fault(fault.code, fault.path, f"{fault.detail}; {fits}")


def _most_microbatches(plan: Plan, turns: int, replays: int, budget: int) -> int | None:
    """The most that fit the budget and the schedule; None when there is none, or it lies far.

    Those of the plan take so many `turns` on links, each as many.
    """
    count = plan.workload.microbatches

    def with_microbatches(number: int) -> Plan:
        return replace(plan, workload=replace(plan.workload, microbatches=number))

    def total(number: int) -> int:
        return work_of(with_microbatches(number), replays=replays).total - (
            -turns * number // count
        )

    family = plan_family(plan)
    fitting = bisect_right(range(1, plan.workload.microbatches), budget, key=total)
    for number in range(fitting, max(0, fitting - _LEGAL_SEARCH), -1):
        # Groups change with the number, so a smaller one is not always less work.
        legal = not check_shape(family, plan_shape(with_microbatches(number)))
        if legal and total(number) <= budget:
            return number
    return None


def work_of(plan: Plan, *, replays: int = 0) -> Work:
    """The work of a full estimate, from the plan's degrees and counts alone.

    `replays` are further runs of the same program that a request asks for.
    """
    degrees = plan.degrees
    family, shape = plan_family(plan), plan_shape(plan)
    stages = degrees.pipeline * plan.schedule.chunks_per_rank
    if plan.stages is not None:
        stages = max(stages, len(plan.stages))
    backward = family.backward(shape)
    # Forward; recompute, backward; or recompute, both halves of the backward.
    for_each = {Backward.NONE: 1, Backward.WHOLE: 3, Backward.SPLIT: 4}[backward]
    operations = stages * plan.workload.microbatches * for_each
    if plan.schedule.order is not None:
        # Written out: a word each, and a recomputation before it.
        operations = 2 * sum(text.count(" ") + 1 for text in plan.schedule.order)
    steady = 0
    period = None if family.period is None else family.period(shape)
    kinds = max(1, for_each - 1)  # without recompute
    listed = [len(numbers) for _, numbers in given_lists(plan)]
    routed = is_routed(plan)
    if routed:
        # Each may read another step of the routing; how many it has is not known here.
        listed.append(plan.workload.microbatches)
    if period is not None and listed:
        # Sizes may repeat after any number of microbatches, as far as a period is looked at.
        longest = MOST_PERIODIC_OPERATIONS // (stages * kinds * period) * period
        period = max(period, min(longest, period * max(listed)))
    if period is not None and stages * period * kinds <= MOST_PERIODIC_OPERATIONS:
        lead = _STEADY_LEADS * family.lead * degrees.pipeline * shape.chunks_per_rank
        steady = lead * family.directions + _STEADY_PERIODS * period
    blocking = plan.schedule.transfer_mode is TransferMode.BLOCKING
    held_against = family.follows_costs and (listed or blocking)
    tried = family.passes + _HANDMADE_RUNS * bool(held_against)
    replicas = degrees.tensor * degrees.context * degrees.data
    pairs = (stages - 1) * family.directions * replicas
    partition = plan.partition
    copies = partition is not None and partition.tied_parameters is TiedParameters.DUPLICATE
    link_runs = _LINK_RUN_COST * (_LINK_RUNS + replays) if _queues(plan) else 0
    return Work(
        operations=operations,
        runs=_RUNS + replays + tried + link_runs + _EVEN_RUNS * routed,
        steady_operations=stages * steady * kinds * (1 + _EVEN_PACES * routed),
        # Copies mostly stand at both ends of the pipeline; more have a limit of their own.
        paths=0
        if plan.topology is None
        else 2 * (pairs + copies * replicas) + reduction_paths(plan),
        path_steps=operations // degrees.pipeline,
        # With more of them the plan is refused before any is placed.
        ranks=min(degrees.world_size, MAX_RANKS),
        listed=sum(listed),
        priced=0 if plan.topology is None else 2 * pairs * _message_sizes(plan),
    )


def _queues(plan: Plan) -> bool:
    """Whether its transfers may queue on links."""
    return plan.topology is not None and plan.schedule.transfer_mode in (None, TransferMode.LINK)


def link_work(links: ProgramLinks | None, *, replays: int = 0) -> Work:
    """What the turns of messages on links add to `work_of`, once it is known who uses which link.

    Each run serves every message on each of its links, and what operations exchange themselves.
    The long iteration in which the pace of the steady state is looked for is bounded by itself.
    """
    if links is None:
        return Work(0, 0)
    served, every = links.turns(links.served), links.turns(links.bundles)
    return Work(0, 0, turns=((_LINK_RUNS + replays) * served + every) // LINK_VISITS)


def expert_work(moe: PlanMoe | None) -> int:
    """The work of the experts of a plan, as it routes tokens and evenly, in operation-runs.

    Each plan by itself is held against a budget of its own when it is resolved.
    """
    if moe is None:
        return 0
    several = (moe.inputs,) if moe.inputs.is_uniform else (moe.inputs, uniform_inputs(moe.inputs))
    return sum(map(expert_units, several)) // _EXPERT_UNITS


def _message_sizes(plan: Plan) -> int:
    """How many sizes the messages of one boundary have at most; 0 where all are alike."""
    if plan.stages is None:
        lengths = set(plan.workload.microbatch_sequence_lengths or ())
        return len(lengths) if len(lengths) > 1 else 0
    bytes_lists = ("boundary_bytes", "backward_boundary_bytes")
    sizes = [len(numbers) for path, numbers in given_lists(plan) if path[-1] in bytes_lists]
    return max(sizes, default=0)
