"""`build_program`: a named schedule, its counts and its edges to a cached `Program`."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.schedules.assemble import assemble_program
from service.core.schedules.catalogue import ScheduleFamily, schedule_family
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind, Program, RecomputeMode, StageEdge

__all__ = ["MAX_OPERATIONS", "build_program", "chain", "count_operations", "program_work"]

# Operations and inputs together; about 40 bytes and 100 ns each.
MAX_OPERATIONS = 4_000_000

# What is cached is bounded by operations, not by programs alone: 64 small ones or 4 larger ones
# come to at most two million operations each; the largest are built again when asked for.
_SMALL_PROGRAM = 2**15
_LARGE_PROGRAM = 2**19


def chain(stages: int) -> tuple[StageEdge, ...]:
    """Each stage feeds the next: (0, 1), (1, 2), ..."""
    return tuple(StageEdge(s, s + 1) for s in range(stages - 1))


def count_operations(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    chunks_per_rank: int = 1,
    recompute: RecomputeMode = RecomputeMode.NONE,
) -> int:
    """How many operations the program has, known before any work. Raises on an unknown name."""
    stage_microbatches = ranks * chunks_per_rank * microbatches
    if not schedule_family(schedule).has_backward:
        return stage_microbatches
    return stage_microbatches * (2 if recompute is RecomputeMode.NONE else 3)


def program_work(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    chunks_per_rank: int = 1,
    recompute: RecomputeMode = RecomputeMode.NONE,
    stage_edges: tuple[StageEdge, ...] | None = None,
) -> int:
    """Operations and transfers of the program, at most; what `MAX_OPERATIONS` limits."""
    edges = ranks * chunks_per_rank - 1 if stage_edges is None else len(stage_edges)
    directions = 2 if schedule_family(schedule).has_backward else 1
    operations = count_operations(
        schedule, ranks, microbatches, chunks_per_rank=chunks_per_rank, recompute=recompute
    )
    return operations + directions * edges * microbatches


def build_program(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    chunks_per_rank: int = 1,
    recompute: RecomputeMode = RecomputeMode.NONE,
    stage_edges: tuple[StageEdge, ...] | None = None,
) -> Program:
    """The program of a named schedule.

    `stage_edges` are the pairs of stages between which tensors go, each once, from a lower to a
    higher stage; by default the chain. With `AFTER_GRADIENT` an R stands before each backward and
    waits for the gradient in its place; with `BEFORE_GRADIENT` R waits for nothing from elsewhere.
    A schedule without backwards has no R.

    Raises `InvalidInput` with every fault of the arguments, `WorkBudgetExceeded` beyond
    `MAX_OPERATIONS`. Results are cached and shared; their arrays are read-only.
    """
    family = schedule_family(schedule)
    faults = _count_faults(ranks, microbatches, chunks_per_rank)
    if faults:
        raise InvalidInput(faults)
    faults = family.check(ranks, microbatches, chunks_per_rank)
    work = program_work(
        schedule,
        ranks,
        microbatches,
        chunks_per_rank=chunks_per_rank,
        recompute=recompute,
        stage_edges=stage_edges,
    )
    if work > MAX_OPERATIONS:
        detail = (
            f"a program has at most {MAX_OPERATIONS} operations and transfers; {microbatches} "
            f"microbatches on {ranks} ranks make {work}"
        )
        raise WorkBudgetExceeded(
            [Fault(FaultCode.WORK_BUDGET, ("workload", "microbatches"), detail)]
        )
    stages = ranks * chunks_per_rank
    edges = chain(stages) if stage_edges is None else tuple(stage_edges)
    faults += _edge_faults(edges, stages)
    if faults:
        raise InvalidInput(faults)
    build: Callable[..., Program]
    if work <= _SMALL_PROGRAM:
        build = _build_small
    elif work <= _LARGE_PROGRAM:
        build = _build_large
    else:
        build = _build
    return build(family, ranks, microbatches, chunks_per_rank, recompute, edges)


def _count_faults(ranks: int, microbatches: int, chunks_per_rank: int) -> list[Fault]:
    counts = (
        ("ranks", ranks, ("parallelism", "pipeline")),
        ("microbatches", microbatches, ("workload", "microbatches")),
        ("chunks_per_rank", chunks_per_rank, ("schedule", "chunks_per_rank")),
    )
    return [
        Fault(FaultCode.OUT_OF_RANGE, path, f"{name} is at least 1; got {count}")
        for name, count, path in counts
        if count < 1
    ]


def _edge_faults(edges: tuple[StageEdge, ...], stages: int) -> list[Fault]:
    faults = [
        Fault(
            FaultCode.INCONSISTENT,
            ("partition",),
            f"tensors go from a lower to a higher of the stages 0..{stages - 1}; "
            f"got {edge.source} to {edge.target}",
        )
        for edge in edges
        if not 0 <= edge.source < edge.target < stages
    ]
    if len(set(edges)) < len(edges):
        detail = "each pair of stages is given once"
        faults.append(Fault(FaultCode.DUPLICATE_NAME, ("partition",), detail))
    return faults


def _build(
    family: ScheduleFamily,
    ranks: int,
    microbatches: int,
    chunks_per_rank: int,
    recompute: RecomputeMode,
    edges: tuple[StageEdge, ...],
) -> Program:
    orders = [family.order(r, ranks, microbatches, chunks_per_rank) for r in range(ranks)]
    if recompute is not RecomputeMode.NONE:
        orders = [_with_recompute(order) for order in orders]
    return assemble_program(
        family.name,
        orders,
        stages=ranks * chunks_per_rank,
        microbatches=microbatches,
        recompute=recompute,
        stage_edges=edges,
    )


_build_small = lru_cache(maxsize=64)(_build)
_build_large = lru_cache(maxsize=4)(_build)


def _with_recompute(order: RankOrder) -> RankOrder:
    """An R right before each backward (before I when the backward is split)."""
    backward = (order.kind == OpKind.BACKWARD) | (order.kind == OpKind.BACKWARD_INPUT)
    before = np.flatnonzero(backward)
    recompute = np.full(len(before), OpKind.RECOMPUTE, dtype=np.int8)
    return RankOrder(
        np.insert(order.kind, before, recompute),
        np.insert(order.stage, before, order.stage[before]),
        np.insert(order.microbatch, before, order.microbatch[before]),
    )
