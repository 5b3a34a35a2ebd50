"""Short ways to build what the schedule tests need."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from service.core.schedules.assemble import assemble_program
from service.core.schedules.build import build_program
from service.core.schedules.critical_path import CriticalPath
from service.core.schedules.gains import Change, Gain, exact_gains
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind, PairMode, Program, RecomputeMode, StageEdge
from service.core.schedules.stage_times import StageSequence, StageTimes, by_stage
from service.core.schedules.timeline import Timeline, simulate_transfers
from service.core.schedules.transfers import TransferMode, Transfers
from tests.core.schedules.event_simulator import Operation, Plan

MILLISECOND = 10**9

Int64Array = npt.NDArray[np.int64]

LETTERS = {kind.letter: kind for kind in OpKind}


def simulate_timeline(
    program: Program,
    times: StageTimes,
    forward_latencies: npt.ArrayLike = 0,
    backward_latencies: npt.ArrayLike | None = None,
    *,
    mode: TransferMode = TransferMode.LATENCY,
) -> Timeline:
    """Simulate one run of the program, in a mode that gives links no capacity.

    Latencies are int64 picoseconds: one for all, one for each of `program.stage_edges`, or (edges,
    microbatches); gradients take as long as activations unless `backward_latencies` says otherwise.

    Raises as `simulate_transfers`.
    """
    edges = len(program.stage_edges)
    forward = _per_edge(forward_latencies, edges)
    backward = forward if backward_latencies is None else _per_edge(backward_latencies, edges)
    return simulate_transfers(program, times, Transfers(mode, forward, backward))


def _per_edge(latencies: npt.ArrayLike, edges: int) -> Int64Array:
    given = np.asarray(latencies, dtype=np.int64)
    if given.ndim == 0:
        return np.full((edges, 1), given)
    return given[:, np.newaxis] if given.ndim == 1 else given


def exact_gain(line: Timeline, path: CriticalPath, change: Change) -> Gain:
    """The gain of one change."""
    return exact_gains(line, path, [change])[0]


def order_of(
    operations: Sequence[Operation], partner: dict[Operation, tuple[int, int]] | None = None
) -> RankOrder:
    """A rank's order from (letter, stage, microbatch), and the backwards of pairs."""
    backwards = [(partner or {}).get(op, op[1:]) for op in operations]
    return RankOrder(
        np.array([LETTERS[letter] for letter, _, _ in operations], dtype=np.int8),
        np.array([stage for _, stage, _ in operations], dtype=np.int32),
        np.array([microbatch for _, _, microbatch in operations], dtype=np.int32),
        np.array([stage for stage, _ in backwards], dtype=np.int32) if partner else None,
        np.array([microbatch for _, microbatch in backwards], dtype=np.int32) if partner else None,
    )


def read_order(text: str) -> RankOrder:
    """A rank's order from `0F0 0F1 0B0`, pairs as `0F1&3B0`."""
    operations: list[Operation] = []
    partner: dict[Operation, tuple[int, int]] = {}
    for word in text.split():
        first, _, second = word.partition("&")
        letter = next(letter for letter in first if letter.isalpha())
        stage, microbatch = first.split(letter)
        operation = ("F&B" if second else letter, int(stage), int(microbatch))
        if second:
            back_stage, back_microbatch = second.split("B")
            partner[operation] = int(back_stage), int(back_microbatch)
        operations.append(operation)
    return order_of(operations, partner)


def write_order(program: Program, rank: int) -> str:
    """`0F0 0F1 0B0` from a program."""
    operations = range(program.rank_offsets[rank], program.rank_offsets[rank + 1])
    return " ".join(program.label(i) for i in operations)


def timeline(
    schedule: str,
    microbatches: int,
    forward: StageSequence,
    backward: StageSequence | None = None,
    latency: npt.ArrayLike = 0,
    *,
    recompute: StageSequence | None = None,
    mode: RecomputeMode = RecomputeMode.NONE,
    chunks: int = 1,
    halves: tuple[StageSequence, StageSequence] | None = None,
    pair: StageSequence | None = None,
    pair_mode: PairMode = PairMode.SERIAL,
    group_size: int | None = None,
) -> Timeline:
    """A chain of stages, `chunks` on each rank; one latency for every hop, or as hops have it."""
    program = build_program(
        schedule,
        len(forward) // chunks,
        microbatches,
        chunks_per_rank=chunks,
        group_size=group_size,
        pair_mode=pair_mode,
        recompute=mode,
    )
    times = StageTimes.of(
        forward, backward, recompute, backward_halves=halves, forward_backward=pair
    )
    return simulate_timeline(program, times, latency)


def thirds(cadences: Sequence[int], unit: int = 3) -> tuple[list[int], list[int]]:
    """Each cadence split into one third forward and two thirds backward, in whole units."""
    return [c * unit // 3 for c in cadences], [2 * c * unit // 3 for c in cadences]


def plan_edges(plan: Plan) -> tuple[StageEdge, ...]:
    """The edges of a reference plan."""
    return tuple(
        StageEdge(edge[0], edge[1], sum(edge[2:]), gradient=index not in plan.untrained)
        for index, edge in enumerate(plan.edges)
    )


def plan_program(plan: Plan, schedule: str = "explicit") -> Program:
    """The service's program of a reference plan."""
    return assemble_program(
        schedule,
        [order_of(order, plan.partner) for order in plan.orders],
        stages=plan.stages,
        microbatches=1 + max(m for order in plan.orders for _, _, m in order),
        directions=plan.directions,
        recompute=RecomputeMode(plan.recompute),
        stage_edges=plan_edges(plan),
    )


def compact(rows: list[list[int]]) -> list[list[int]]:
    """One time a row where all microbatches take the same."""
    if all(len(set(row)) == 1 for row in rows):
        return [row[:1] for row in rows]
    return rows


def plan_times(plan: Plan) -> StageTimes:
    """The service's stage times of a reference plan; its whole backward is the plan's own."""
    durations = {letter: compact(rows) for letter, rows in plan.durations.items()}
    times = StageTimes.of(
        durations["F"],
        recompute=durations["R"],
        backward_halves=(durations["I"], durations["W"]),
        forward_backward=durations.get("F&B"),
    )
    return replace(times, backward=by_stage(durations["B"]))


def plan_hops(plan: Plan) -> tuple[Int64Array, Int64Array]:
    """The latencies of a reference plan there and back, (edges, microbatches or 1)."""
    there, back = compact(plan.forward), compact(plan.backward)
    none = np.zeros((0, 1), dtype=np.int64)
    return by_stage(there) if there else none, by_stage(back) if back else none


def plan_order(plan: Plan) -> tuple[str, ...]:
    """The orders of a reference plan as texts, without recomputations where the mode adds them."""
    return tuple(
        " ".join("&".join(f"{s}{letter}{m}" for letter, s, m in plan.parts(op)) for op in order)
        for order in plan.orders
    )


def named_program(plan: Plan, schedule: str) -> Program:
    """The program that the service builds by itself for a plan of a named schedule."""
    return build_program(
        schedule,
        len(plan.orders),
        1 + max(m for order in plan.orders for _, _, m in order),
        chunks_per_rank=plan.chunks,
        pair_mode=PairMode.FUSED if plan.partner else PairMode.SERIAL,
        recompute=RecomputeMode(plan.recompute),
        stage_edges=plan_edges(plan),
        order=plan_order(plan) if schedule == "explicit" else None,
    )


def plan_timeline(plan: Plan, program: Program) -> Timeline | None:
    """The timeline of a reference plan, or None where no operation takes time."""
    if not any(plan.duration(op) for order in plan.orders for op in order):
        return None
    return simulate_timeline(program, plan_times(plan), *plan_hops(plan))
