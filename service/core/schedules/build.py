"""`build_program`: a named schedule, its counts and its edges to a cached `Program`."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.schedules.assemble import assemble_program
from service.core.schedules.catalogue import ScheduleFamily, check_shape, schedule_family
from service.core.schedules.explicit import has_recompute
from service.core.schedules.order_costs import OrderCosts
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind, PairMode, Program, RecomputeMode, StageEdge
from service.core.schedules.shape import Backward, Shape

__all__ = [
    "MAX_OPERATIONS",
    "build_program",
    "chain",
    "count_operations",
    "program_work",
    "refuses_microbatches",
    "with_edges",
    "with_microbatches",
]

# Operations and inputs together; about 40 bytes and 100 ns each.
MAX_OPERATIONS = 4_000_000

# What is cached is bounded by operations, not by programs alone: 64 small ones or 4 larger ones
# come to at most two million operations each; the largest are built again when asked for.
_SMALL_PROGRAM = 2**15
_LARGE_PROGRAM = 2**19


def chain(stages: int, directions: int = 1) -> tuple[StageEdge, ...]:
    """Each stage feeds the next: (0, 1), (1, 2), ...; all of one direction after the other."""
    return tuple(
        StageEdge(s, s + 1, direction) for direction in range(directions) for s in range(stages - 1)
    )


def count_operations(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    chunks_per_rank: int | None = None,
    recompute: RecomputeMode = RecomputeMode.NONE,
    order: tuple[str, ...] | None = None,
) -> int:
    """How many operations the program has at most, known before any work.

    Exact where every backward is whole, or every one is split. Raises on an unknown name.
    """
    family = schedule_family(schedule)
    shape = family.shape(ranks, microbatches, chunks_per_rank=chunks_per_rank, order=order)
    if order is not None:
        return sum(text.count(" ") + 1 for text in order) * 2
    backward = family.backward(shape)
    kinds = {Backward.NONE: 1, Backward.WHOLE: 2, Backward.SPLIT: 3}[backward]
    if recompute is not RecomputeMode.NONE and backward is not Backward.NONE:
        kinds += 1
    return ranks * shape.chunks_per_rank * microbatches * kinds


def program_work(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    chunks_per_rank: int | None = None,
    recompute: RecomputeMode = RecomputeMode.NONE,
    stage_edges: tuple[StageEdge, ...] | None = None,
    order: tuple[str, ...] | None = None,
) -> int:
    """Operations and transfers of the program, at most; what `MAX_OPERATIONS` limits."""
    family = schedule_family(schedule)
    shape = family.shape(ranks, microbatches, chunks_per_rank=chunks_per_rank, order=order)
    operations = count_operations(
        schedule,
        ranks,
        microbatches,
        chunks_per_rank=chunks_per_rank,
        recompute=recompute,
        order=order,
    )
    if stage_edges is None:
        crossings = (ranks * shape.chunks_per_rank - 1) * microbatches
    else:
        crossings = len(stage_edges) * -(-microbatches // family.directions)
    ways = 1 if family.backward(shape) is Backward.NONE else 2
    return operations + ways * crossings


def build_program(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    chunks_per_rank: int | None = None,
    group_size: int | None = None,
    pair_mode: PairMode = PairMode.SERIAL,
    recompute: RecomputeMode = RecomputeMode.NONE,
    stage_edges: tuple[StageEdge, ...] | None = None,
    order: tuple[str, ...] | None = None,
    memory_limit_activations: int | None = None,
    costs: OrderCosts | None = None,
) -> Program:
    """The program of a named schedule.

    `stage_edges` are the pairs of stages between which tensors go, each once in each direction,
    from a lower to a higher stage; by default the chain. With `AFTER_GRADIENT` an R stands before
    each backward and waits for the gradient in its place; with `BEFORE_GRADIENT` R waits for
    nothing from elsewhere. A schedule without backwards has no R. Pairs, where the schedule has
    any, are run as `pair_mode` says. `order` is for the schedule `explicit` (see its module),
    `memory_limit_activations` for `zb_auto`. Where an order follows from times and memory it is
    made for `costs`, by default equal ones; elsewhere they are left aside.

    Raises `InvalidInput` with every fault of the arguments, `WorkBudgetExceeded` beyond
    `MAX_OPERATIONS`. Results are cached and shared; their arrays are read-only.
    """
    family = schedule_family(schedule)
    shape = family.shape(
        ranks,
        microbatches,
        chunks_per_rank=chunks_per_rank,
        group_size=group_size,
        order=order,
        memory_limit_activations=memory_limit_activations,
        costs=costs,
    )
    faults = _count_faults(shape)
    if faults:
        raise InvalidInput(faults)
    faults = check_shape(family, shape)
    work = program_work(
        schedule,
        ranks,
        microbatches,
        chunks_per_rank=chunks_per_rank,
        recompute=recompute,
        stage_edges=stage_edges,
        order=order,
    )
    if work > MAX_OPERATIONS:
        detail = (
            f"a program has at most {MAX_OPERATIONS} operations and transfers; {microbatches} "
            f"microbatches on {ranks} ranks make {work}"
        )
        raise WorkBudgetExceeded(
            [Fault(FaultCode.WORK_BUDGET, ("workload", "microbatches"), detail)]
        )
    if family.takes_order and faults:
        raise InvalidInput(faults)  # without a readable order there are no stages to speak of
    stages = len(family.placement(shape)[0])
    edges = chain(stages, family.directions) if stage_edges is None else tuple(stage_edges)
    faults += _edge_faults(edges, stages, family.directions)
    if faults:
        raise InvalidInput(faults)
    build: Callable[..., Program]
    if work <= _SMALL_PROGRAM:
        build = _build_small
    elif work <= _LARGE_PROGRAM:
        build = _build_large
    else:
        build = _build
    return build(family, shape, stages, pair_mode, recompute, edges)


def with_microbatches(program: Program, microbatches: int) -> Program | None:
    """The same schedule on the same stages with another number of microbatches.

    An order that follows from costs is made anew for the same costs.

    None where there is none: an order that was written out, a number that the schedule refuses, or
    more than `MAX_OPERATIONS`.
    """
    if refuses_microbatches(program, microbatches):
        return None
    work = program_work(
        program.schedule,
        program.ranks,
        microbatches,
        chunks_per_rank=program.chunks_per_rank,
        recompute=program.recompute,
        stage_edges=program.stage_edges,
    )
    if work > MAX_OPERATIONS:
        return None
    return _again(program, microbatches, program.stage_edges, program.recompute)


def with_edges(
    program: Program,
    stage_edges: tuple[StageEdge, ...],
    recompute: RecomputeMode,
    order: tuple[str, ...] | None = None,
) -> Program:
    """The same schedule with tensors over other edges, or another place for recomputations.

    `order` is that of a program whose order was written out. An order that follows from costs stays
    the one that was made for them. Raises as `build_program` does.
    """
    if stage_edges == program.stage_edges and recompute is program.recompute:
        return program
    return _again(program, program.microbatches, stage_edges, recompute, order)


def _again(
    program: Program,
    microbatches: int,
    stage_edges: tuple[StageEdge, ...],
    recompute: RecomputeMode,
    order: tuple[str, ...] | None = None,
) -> Program:
    """The program of the same arguments but for these."""
    return build_program(
        program.schedule,
        program.ranks,
        microbatches,
        chunks_per_rank=program.chunks_per_rank,
        group_size=program.group_size,
        pair_mode=program.pair_mode,
        recompute=recompute,
        stage_edges=stage_edges,
        order=order,
        memory_limit_activations=program.memory_limit_activations,
        costs=program.costs,
    )


def refuses_microbatches(program: Program, microbatches: int) -> bool:
    """Whether the schedule of a program has no order for another number of microbatches."""
    family = schedule_family(program.schedule)
    shape = family.shape(
        program.ranks,
        microbatches,
        chunks_per_rank=program.chunks_per_rank,
        group_size=program.group_size,
        memory_limit_activations=program.memory_limit_activations,
    )
    return family.takes_order or bool(check_shape(family, shape))


def _count_faults(shape: Shape) -> list[Fault]:
    counts = (
        ("ranks", shape.ranks, ("parallelism", "pipeline")),
        ("microbatches", shape.microbatches, ("workload", "microbatches")),
        ("chunks_per_rank", shape.chunks_per_rank, ("schedule", "chunks_per_rank")),
    )
    return [
        Fault(FaultCode.OUT_OF_RANGE, path, f"{name} is at least 1; got {count}")
        for name, count, path in counts
        if count < 1
    ]


def _edge_faults(edges: tuple[StageEdge, ...], stages: int, directions: int) -> list[Fault]:
    faults = [
        Fault(
            FaultCode.INCONSISTENT,
            ("partition",),
            f"tensors go from a lower to a higher of the stages 0..{stages - 1}; "
            f"got {edge.source} to {edge.target}",
        )
        for edge in edges
        if not 0 <= edge.source < edge.target < stages or not 0 <= edge.direction < directions
    ]
    if len(set(edges)) < len(edges):
        detail = "each pair of stages is given once"
        faults.append(Fault(FaultCode.DUPLICATE_NAME, ("partition",), detail))
    return faults


def _build(
    family: ScheduleFamily,
    shape: Shape,
    stages: int,
    pair_mode: PairMode,
    recompute: RecomputeMode,
    edges: tuple[StageEdge, ...],
) -> Program:
    orders = list(family.orders(shape))
    if pair_mode is PairMode.SERIAL:
        orders = [order.unfused() for order in orders]
    if recompute is not RecomputeMode.NONE and not has_recompute(shape):
        orders = [_with_recompute(order) for order in orders]
    return assemble_program(
        family.name,
        orders,
        stages=stages,
        microbatches=shape.microbatches,
        directions=family.directions,
        group_size=shape.group_size,
        pair_mode=pair_mode,
        recompute=recompute,
        stage_edges=edges,
        memory_limit_activations=shape.memory_limit_activations,
        costs=shape.costs,
    )


_build_small = lru_cache(maxsize=64)(_build)
_build_large = lru_cache(maxsize=4)(_build)


def _with_recompute(order: RankOrder) -> RankOrder:
    """An R right before each backward (before I when the backward is split)."""
    kinds = (OpKind.BACKWARD, OpKind.BACKWARD_INPUT, OpKind.FORWARD_BACKWARD)
    before = np.flatnonzero(np.isin(order.kind, kinds))
    stage, microbatch = order.stage, order.microbatch
    if order.backward_stage is not None and order.backward_microbatch is not None:
        stage, microbatch = order.backward_stage, order.backward_microbatch
    again = stage[before], microbatch[before]
    kind = np.insert(order.kind, before, np.int8(OpKind.RECOMPUTE))
    own = np.insert(order.stage, before, again[0]), np.insert(order.microbatch, before, again[1])
    if order.backward_stage is None:
        return RankOrder(kind, *own)
    return RankOrder(
        kind, *own, np.insert(stage, before, again[0]), np.insert(microbatch, before, again[1])
    )
