"""When the reductions of a plan run beside and after its simulated timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.estimates.reduction.sharing import Job, Span, run_jobs
from service.core.plans.gradient_reduction import ReductionOverlap
from service.core.plans.tied import TiedCopies
from service.core.schedules.gradients import StageGradients, stage_gradients
from service.core.schedules.timeline import Timeline

__all__ = ["MAX_BUCKETS", "Task", "exchange_copies", "run_after", "run_beside"]

# Buckets over all stages of a plan.
MAX_BUCKETS = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One collective of a stage among all its groups.

    Tasks of equal `groups` follow each other, as their ranks run one after another. A task of a
    given time has no bytes: all of it is `latency_picoseconds`.
    """

    stage: int
    pipeline_ranks: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    message_bytes: int
    latency_picoseconds: int
    seconds_per_byte: Mapping[str, Fraction] = field(default_factory=dict)


def run_beside(
    timeline: Timeline,
    tasks: Sequence[Task],
    overlap: ReductionOverlap,
    bucket_bytes: int | None = None,
) -> list[tuple[Span, int]]:
    """From the start of the first bucket of each task to the end of its last, and their number.

    A bucket is ready when all pipeline ranks of the stage have its gradients. With `buckets` these
    become ready evenly along the last operation that adds to them, and latency is paid by each.
    """
    gradients = {(one.stage, one.rank): one for one in stage_gradients(timeline)}
    last_end = [int(end) for end in timeline.last_end]
    jobs: list[Job] = []
    counts = [_buckets(task, overlap, bucket_bytes) for task in tasks]
    if sum(counts) > MAX_BUCKETS:
        detail = f"{sum(counts)} buckets of gradients; at most {MAX_BUCKETS} are followed"
        path = ("training", "gradient_reduction", "bucket_bytes")
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, path, detail)])
    queues = _queues(tasks)
    for task, count, queue in zip(tasks, counts, queues, strict=True):
        of_stage = [
            gradients[task.stage, rank]
            for rank in task.pipeline_ranks
            if (task.stage, rank) in gradients
        ]
        for number in range(count):
            if overlap is ReductionOverlap.NONE:
                ready = max(last_end[rank] for rank in task.pipeline_ranks)
            else:
                done = task.message_bytes
                if number < count - 1:
                    done = (number + 1) * (bucket_bytes or 0)
                ready = max(_ready(one, done, task.message_bytes) for one in of_stage)
            before = number * (bucket_bytes or 0)
            size = task.message_bytes - before
            if number < count - 1:
                size = bucket_bytes or 0
            jobs.append(Job(queue, ready, size, task.seconds_per_byte, task.latency_picoseconds))
    spans = iter(run_jobs(jobs))
    found = []
    for count in counts:
        of_task = [next(spans) for _ in range(count)]
        found.append((Span(of_task[0].start, max(span.end for span in of_task)), count))
    return found


def run_after(tasks: Sequence[Task], ready: Sequence[int]) -> list[Span]:
    """The span of each task that may begin when its pipeline ranks are all `ready`."""
    jobs = [
        Job(
            queue,
            max(ready[rank] for rank in task.pipeline_ranks),
            task.message_bytes,
            task.seconds_per_byte,
            task.latency_picoseconds,
        )
        for task, queue in zip(tasks, _queues(tasks), strict=True)
    ]
    return run_jobs(jobs)


def exchange_copies(
    timeline: Timeline,
    copies: Sequence[TiedCopies],
    reduced: Mapping[int, int],
    overlap: ReductionOverlap,
) -> tuple[Span | None, ...]:
    """When the gradients of each set of copies are added up; None where that is not known.

    After the reduction of all stages that hold them (`reduced` has its end by stage, where there is
    any), and after other exchanges of the same ranks.
    """
    complete: dict[int, int] = {}
    for done in stage_gradients(timeline):
        complete[done.stage] = max(complete.get(done.stage, 0), done.complete)
    free: dict[int, int] = {}
    found: list[Span | None] = []
    for one in copies:
        if not one.groups or not one.rank_gradient_bytes or one.picoseconds is None:
            found.append(None)
            continue
        ready = [max(complete.get(stage, 0), reduced.get(stage, 0)) for stage in one.stages]
        ready += [free.get(rank, 0) for rank in one.pipeline_ranks]
        if overlap is ReductionOverlap.NONE:
            ready += [int(timeline.last_end[rank]) for rank in one.pipeline_ranks]
        span = Span(max(ready), max(ready) + one.picoseconds)
        free |= dict.fromkeys(one.pipeline_ranks, span.end)
        found.append(span)
    return tuple(found)


def _queues(tasks: Sequence[Task]) -> list[int]:
    numbers: dict[tuple[tuple[int, ...], ...], int] = {}
    return [numbers.setdefault(task.groups, len(numbers)) for task in tasks]


def _buckets(task: Task, overlap: ReductionOverlap, bucket_bytes: int | None) -> int:
    if overlap is not ReductionOverlap.BUCKETS or not bucket_bytes:
        return 1
    return max(1, -(-task.message_bytes // bucket_bytes))


def _ready(gradients: StageGradients, done: int, whole: int) -> int:
    """When so many bytes of all are complete, rounded up."""
    if done == whole:
        return gradients.complete
    lasts = gradients.complete - gradients.last_start
    return gradients.last_start - (-lasts * done // whole)
