"""When the reductions of a plan run beside and after its simulated timeline."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

from service.core.amounts import Amount, SizeClasses, at_class
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
    given time has no bytes: all of it is `latency_picoseconds`. `layers` has the bytes of each
    layer of the stage, in execution order, and what it takes of the operation that makes them.
    """

    stage: int
    pipeline_ranks: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    message_bytes: int
    latency_picoseconds: int
    seconds_per_byte: Mapping[str, Fraction] = field(default_factory=dict)
    layers: tuple[tuple[int, Amount], ...] = ()


def run_beside(
    timeline: Timeline,
    sizes: SizeClasses,
    tasks: Sequence[Task],
    overlap: ReductionOverlap,
    bucket_bytes: int | None = None,
) -> list[tuple[Span, int]]:
    """From the start of the first bucket of each task to the end of its last, and their number.

    A bucket is ready when all pipeline ranks of the stage have its gradients. With `buckets` these
    become ready along the last operation that adds to them, a layer at a time from the last one on,
    and evenly where a task has no layers; latency is paid by each bucket. `sizes` are those of the
    microbatches.
    """
    gradients = {(one.stage, one.rank): one for one in stage_gradients(timeline)}
    last_end = [int(end) for end in timeline.last_end]
    jobs: list[Job] = []
    cuts = [_cuts(task, overlap, bucket_bytes) for task in tasks]
    counts = [len(of_task) + 1 for of_task in cuts]
    if sum(counts) > MAX_BUCKETS:
        detail = f"{sum(counts)} buckets of gradients; at most {MAX_BUCKETS} are followed"
        path = ("training", "gradient_reduction", "bucket_bytes")
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, path, detail)])
    queues = _queues(tasks)
    for task, of_task, queue in zip(tasks, cuts, queues, strict=True):
        of_stage = [
            _Readiness(gradients[task.stage, rank], task, sizes)
            for rank in task.pipeline_ranks
            if (task.stage, rank) in gradients
        ]
        before = 0
        for done in (*of_task, task.message_bytes):
            if overlap is ReductionOverlap.NONE:
                ready = max(last_end[rank] for rank in task.pipeline_ranks)
            else:
                ready = max(one.at(done) for one in of_stage)
            size = done - before
            jobs.append(Job(queue, ready, size, task.seconds_per_byte, task.latency_picoseconds))
            before = done
    spans = iter(run_jobs(jobs))
    found = []
    for count in counts:
        buckets = [next(spans) for _ in range(count)]
        found.append((Span(buckets[0].start, max(span.end for span in buckets)), count))
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


def _cuts(task: Task, overlap: ReductionOverlap, bucket_bytes: int | None) -> range:
    """The bytes of a task at which one bucket ends and the next one begins."""
    if overlap is not ReductionOverlap.BUCKETS or not bucket_bytes:
        return range(0)
    return range(bucket_bytes, task.message_bytes, bucket_bytes)


class _Readiness:
    """From when on how much of the gradients of a task is complete on one of its pipeline ranks."""

    def __init__(self, gradients: StageGradients, task: Task, sizes: SizeClasses) -> None:
        self._gradients, self._whole = gradients, task.message_bytes
        of_class = sizes.of_microbatch[gradients.last_microbatch] if sizes.count > 1 else 0
        backwards = task.layers[::-1]
        self._bytes = list(accumulate(size for size, _ in backwards))
        self._times = list(accumulate(at_class(time, of_class) for _, time in backwards))

    def at(self, done: int) -> int:
        """When so many bytes are complete, in picoseconds, rounded up."""
        gradients = self._gradients
        if done == self._whole:
            return gradients.complete
        made, whole = done, self._whole
        if self._times and self._times[-1]:
            made, whole = self._times[bisect_left(self._bytes, done)], self._times[-1]
        lasts = gradients.complete - gradients.last_start
        return gradients.last_start - (-lasts * made // whole)
