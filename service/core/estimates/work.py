"""The work of a calculation, known before it is done."""

from dataclasses import dataclass

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.plans.plan import Plan

__all__ = ["INLINE_WORK_BUDGET", "Work", "work_of"]

# What one request may ask for and be answered at once, in operation-runs: a few seconds of one
# core at the most, building the program included.
INLINE_WORK_BUDGET = 32_000_000

# One timeline, three replays for the split of the idle time, two other microbatch counts of
# which the larger is twice as long (together 2.5 runs), rounded up.
_RUNS = 8

# The steady state is read off an order of about 4 microbatches a rank, and its operations are
# looked at one by one: about twelve times the cost of simulating them.
_STEADY_MICROBATCHES = 4
_STEADY_RUNS = 12

# Searching a large cluster for one physical path costs about as much as so many operations. Each
# pair of ranks needs one there and one back.
_PATH_OPERATIONS = 4_000


@dataclass(frozen=True, slots=True)
class Work:
    """`operations` of one iteration, simulated `runs` times, and what comes beside them."""

    operations: int
    runs: int
    steady_operations: int = 0
    paths: int = 0

    @property
    def total(self) -> int:
        """All of it, in operation-runs, which is what a budget is counted in."""
        return (
            self.operations * self.runs
            + self.steady_operations * _STEADY_RUNS
            + self.paths * _PATH_OPERATIONS
        )

    def check(self, budget: int = INLINE_WORK_BUDGET) -> None:
        """Raise `WorkBudgetExceeded`, pointing at the largest part, when it is above the budget."""
        if self.total <= budget:
            return
        parts = [
            (
                self.operations * self.runs,
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
        ]
        _, path, what = max(parts)
        detail = f"{what} (all of it is {self.total} units of work, one request may take {budget})"
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, path, detail)])


def work_of(plan: Plan) -> Work:
    """The work of a full estimate, from the plan's degrees and counts alone."""
    degrees = plan.degrees
    stages = degrees.pipeline * plan.schedule.chunks_per_rank
    if plan.stages is not None:
        stages = max(stages, len(plan.stages))
    # Forward, recompute, backward.
    for_each = 1 if plan.schedule.kind == "forward_only" else 3
    replicas = degrees.tensor * degrees.context * degrees.data
    return Work(
        operations=stages * plan.workload.microbatches * for_each,
        runs=_RUNS,
        steady_operations=stages * degrees.pipeline * _STEADY_MICROBATCHES * min(for_each, 2),
        paths=0 if plan.topology is None else 2 * (stages - 1) * replicas,
    )
