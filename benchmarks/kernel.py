"""Nanoseconds per operation of simulating and of building a program, beside plain Python.

    python -m benchmarks.kernel

Each number is the best of several repetitions; the ratio to plain Python is taken in the same run.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from service.core.schedules.assemble import assemble_program
from service.core.schedules.build import chain
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import Program
from service.core.schedules.shape import Shape
from service.core.schedules.simulate import simulate, warm_up
from service.core.schedules.stage_times import StageTimes, edge_latencies, operation_durations

SIZES = ((8, 64), (16, 256), (32, 512))
REPEATS = 7


def best_seconds(work: Callable[[], object]) -> float:
    """The shortest of several runs."""
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def build(ranks: int, microbatches: int) -> Program:
    """A 1F1B program, past the cache."""
    family = SCHEDULES["1f1b"]
    return assemble_program(
        "1f1b",
        family.orders(Shape(ranks, microbatches)),
        stages=ranks,
        microbatches=microbatches,
        stage_edges=chain(ranks),
    )


def build_in_python(ranks: int, microbatches: int) -> list[int]:
    """Order, index and topological order of 1F1B with dictionaries and lists."""
    operations: list[tuple[int, int, int]] = []
    stops = []
    for rank in range(ranks):
        warm_up_count = min(microbatches, ranks - 1 - rank)
        operations.extend((0, rank, m) for m in range(warm_up_count))
        for m in range(microbatches - warm_up_count):
            operations.append((0, rank, warm_up_count + m))
            operations.append((1, rank, m))
        cool_down = range(microbatches - warm_up_count, microbatches)
        operations.extend((1, rank, m) for m in cool_down)
        stops.append(len(operations))
    index = {operation: i for i, operation in enumerate(operations)}
    reached = [0, *stops[:-1]]
    done = [False] * len(operations)
    order: list[int] = []
    while len(order) < len(operations):
        for rank in range(ranks):
            while reached[rank] < stops[rank]:
                kind, stage, m = operations[reached[rank]]
                neighbour = (kind, stage - 1 if kind == 0 else stage + 1, m)
                if neighbour in index and not done[index[neighbour]]:
                    break
                done[reached[rank]] = True
                order.append(reached[rank])
                reached[rank] += 1
    return order


def simulate_in_python(
    program: Program, durations: list[int], latencies: list[int]
) -> Callable[[], list[int]]:
    """The same recurrence over lists, ready to run."""
    order, rank = program.order.tolist(), program.rank.tolist()
    offsets, inputs = program.input_offsets.tolist(), program.inputs.tolist()

    def run() -> list[int]:
        free = [0] * program.ranks
        end = [0] * len(order)
        for operation in order:
            latest = free[rank[operation]]
            for j in range(offsets[operation], offsets[operation + 1]):
                arrival = end[inputs[j]] + latencies[j]
                latest = max(latest, arrival)
            end[operation] = free[rank[operation]] = latest + durations[operation]
        return end

    return run


def main() -> None:
    """Print one line a size."""
    warm_up()
    rng = np.random.default_rng(1)
    print("ranks x microbatches  operations   simulate     ratio      build     ratio")
    for ranks, microbatches in SIZES:
        program = build(ranks, microbatches)
        times = StageTimes(*rng.integers(10**9, 10**10, (3, ranks, 1)))
        hops = rng.integers(0, 10**9, ranks - 1)
        durations = operation_durations(program, times)
        latencies = edge_latencies(program, hops, hops)
        in_python = simulate_in_python(program, durations.tolist(), latencies.tolist())
        if simulate(program, durations, latencies).end.tolist() != in_python():
            raise RuntimeError("the compiled kernel and plain Python disagree")
        ns = 1e9 / program.operations
        compiled = best_seconds(partial(simulate, program, durations, latencies)) * ns
        plain = best_seconds(in_python) * ns
        built = best_seconds(partial(build, ranks, microbatches)) * ns
        plain_built = best_seconds(partial(build_in_python, ranks, microbatches)) * ns
        print(
            f"{ranks:>10} x {microbatches:<9} {program.operations:>9}"
            f" {compiled:>8.1f} ns {plain / compiled:>8.1f}x {built:>8.1f} ns"
            f" {plain_built / built:>8.1f}x"
        )


if __name__ == "__main__":
    main()
