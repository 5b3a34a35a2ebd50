"""What simulating costs, in one run: kernel, program, explanations, link mode, families, HTTP.

    python -m benchmarks.kernel

Interleaved 1F1B (1F1B where a rank has one chunk) on uneven stages. Each number is the best of
several repetitions, in CPU time of this process, which other processes disturb least; every ratio
is taken within the same run. The C loop is compiled here by `cc`.
"""

import asyncio
import ctypes
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt

from service.core.estimates.estimate import estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.estimates.work import INLINE_WORK_BUDGET, work_of
from service.core.plans.plan import Degrees, GivenStage, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.schedules import build
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.bundles import Bundles
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.link_run import simulate_links
from service.core.schedules.program import PairMode, Program, RecomputeMode
from service.core.schedules.sensitivity import measure_sensitivity
from service.core.schedules.simulate import Run, simulate, warm_up
from service.core.schedules.slack import measure_slack
from service.core.schedules.timeline import Timeline
from service.main import create_app
from service.settings import read_settings
from service.store.migrate import upgrade

SIZES = ((8, 64, 1), (16, 256, 2), (32, 512, 2), (64, 1024, 4))
FAMILY_SIZE = (16, 256)
# What is aimed at, as ratios: of the kernel to the C loop, of the others to the kernel.
WANTED = {"kernel": 2.0, "cold program": 15.0, "explanations": 5.0}
SOURCE = Path(__file__).with_name("recurrence.c")

Int64Array = npt.NDArray[np.int64]


def best_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """CPU time of the shortest of several runs."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def plan_of(ranks: int, microbatches: int, chunks: int) -> Plan:
    """Uneven stages, the same in every run of the benchmark."""
    rng = np.random.default_rng(1)
    stages = ranks * chunks
    seconds = rng.uniform((0.006, 0.012, 0.0005), (0.008, 0.016, 0.001), (stages, 3)).tolist()
    return Plan(
        Degrees(ranks),
        Workload(microbatches, microbatch_size=1),
        Schedule("1f1b" if chunks == 1 else "interleaved_1f1b", chunks_per_rank=chunks),
        stages=tuple(
            GivenStage(
                forward_seconds=forward,
                backward_seconds=backward,
                activation_bytes=1 << 20,
                transfer_seconds=hop if stage < stages - 1 else None,
            )
            for stage, (forward, backward, hop) in enumerate(seconds)
        ),
    )


def compiled_loop(folder: Path) -> ctypes.CDLL | None:
    """The recurrence in C, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = folder / "recurrence.so"
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True
    )
    return ctypes.CDLL(str(library))


def loop_of(library: ctypes.CDLL, program: Program, timeline: Timeline) -> Callable[[], Run]:
    """The C loop over a program, ready to run; it allocates its results as the kernel does."""
    constants = (
        program.order,
        program.rank,
        program.input_offsets,
        program.inputs,
        timeline.durations,
        timeline.latencies,
    )

    def run() -> Run:
        free = np.zeros(program.ranks, dtype=np.int64)
        start = np.empty(program.operations, dtype=np.int64)
        end = np.empty(program.operations, dtype=np.int64)
        binding = np.empty(program.operations, dtype=np.int32)
        arrays = (*constants, free, start, end, binding)
        library.recurrence(
            ctypes.c_int64(program.operations),
            *(ctypes.c_void_p(array.ctypes.data) for array in arrays),
        )
        return Run(start, end, binding)

    return run


def explain(timeline: Timeline) -> None:
    """Split of the idle time with its replays, critical path, sensitivities, slack."""
    measure_bubble(timeline)
    measure_sensitivity(timeline, find_critical_path(timeline))
    measure_slack(timeline)


def build_cold(program: Program) -> Program:
    """The same program again, past the cache."""
    family = SCHEDULES[program.schedule]
    shape = family.shape(
        program.ranks, program.microbatches, chunks_per_rank=program.chunks_per_rank
    )
    uncached = build.build_program.__globals__["_build"]
    built: Program = uncached(
        family, shape, program.stages, PairMode.SERIAL, RecomputeMode.NONE, program.stage_edges
    )
    return built


def over_one_link_a_boundary(program: Program, timeline: Timeline) -> Callable[[], Run]:
    """Link mode with a link for each boundary and direction, occupied half of what a hop takes."""
    edges = len(program.stage_edges)
    hops = [*timeline.forward_latencies[:, 0], *timeline.backward_latencies[:, 0]]
    occupied = [[(number, int(hop) // 2)] for number, hop in enumerate(hops)]
    bundles = Bundles.of(2 * edges, occupied, [int(hop) // 2 for hop in hops])
    kinds = (program.input_edges + edges * program.input_gradient).astype(np.int32)
    return partial(simulate_links, program, timeline.durations, bundles, kinds)


def print_sizes(library: ctypes.CDLL | None) -> None:
    """One line a size."""
    print(
        "  P x M x chunks  operations | kernel  C loop  ratio | cold program    cached |"
        " explanations |  estimate | link mode | inline budget"
    )
    missed = []
    for size in SIZES:
        plan = plan_of(*size)
        simulated = simulate_plan(resolve(plan))
        timeline = simulated.timeline
        program = timeline.program
        per_operation = 1e9 / program.operations
        kernel = best_seconds(partial(simulate, program, timeline.durations, timeline.latencies), 9)
        loop = "   none  none"
        ratios = {}
        if library is not None:
            in_c = loop_of(library, program, timeline)
            found = simulate(program, timeline.durations, timeline.latencies)
            if not np.array_equal(in_c().end, found.end):
                raise RuntimeError("the kernel and the C loop disagree")
            seconds = best_seconds(in_c, 9)
            ratios["kernel"] = kernel / seconds
            loop = f"{seconds * per_operation:>7.1f} {kernel / seconds:>6.2f}"
        cold = best_seconds(partial(build_cold, program), 3)
        cached = best_seconds(partial(rebuilt, program), 3)
        explained = best_seconds(partial(explain, timeline), 9)
        whole = best_seconds(partial(estimate_plan, simulated), 2)
        linked = best_seconds(over_one_link_a_boundary(program, timeline), 3)
        ratios |= {"cold program": cold / kernel, "explanations": explained / kernel}
        missed += [
            f"{name} {ratio:.1f}x at {'x'.join(map(str, size))}"
            for name, ratio in ratios.items()
            if ratio > WANTED[name]
        ]
        share = work_of(plan).total / INLINE_WORK_BUDGET
        print(
            f"{size[0]:>4} x {size[1]:>4} x {size[2]:<2} {program.operations:>12} |"
            f" {kernel * per_operation:>6.1f} {loop} |"
            f" {cold * per_operation:>6.1f} {cold / kernel:>4.1f}x {cached * 1e6:>7.0f}us |"
            f" {explained * per_operation:>6.1f} {explained / kernel:>5.1f}x |"
            f" {whole * 1e3:>7.1f}ms | {linked * per_operation:>6.1f}    | {share:>6.1%}"
        )
    print("kernel, C loop, cold program, explanations, link mode: nanoseconds an operation;")
    print("x: times the kernel. Programs of the largest sizes are not kept, so none is cached.")
    print("wanted:", ", ".join(f"{name} at most {most:g}x" for name, most in WANTED.items()))
    print("not reached:", ", ".join(missed) or "none")


def print_links() -> None:
    """Link mode by how many links a message occupies: linear in operations and in turns."""
    rng = np.random.default_rng(1)
    print("\nlink mode: links a message | nanoseconds an operation | a turn on a link")
    for ranks, microbatches in ((16, 256), (64, 1024)):
        timeline = simulate_plan(resolve(plan_of(ranks, microbatches, 1))).timeline
        program = timeline.program
        kinds = (2 * program.input_edges + program.input_gradient).astype(np.int32)
        for links in (1, 4, 16, 64):
            occupied = [
                [(int(link), int(rng.integers(1, 10**8))) for link in rng.choice(256, links, False)]
                for _ in range(2 * len(program.stage_edges))
            ]
            bundles = Bundles.of(256, occupied, [0] * len(occupied))
            run = partial(simulate_links, program, timeline.durations, bundles, kinds)
            nanoseconds = best_seconds(run, 3) * 1e9
            print(
                f"{ranks:>9} x {microbatches:<5} {links:>3} links | "
                f"{nanoseconds / program.operations:>8.1f} | "
                f"{nanoseconds / (len(kinds) * links):>8.1f}"
            )


def rebuilt(program: Program) -> Program:
    """The same program by its name: from the cache, where it is small enough to be kept."""
    return build.build_program(
        program.schedule,
        program.ranks,
        program.microbatches,
        chunks_per_rank=program.chunks_per_rank,
        stage_edges=program.stage_edges,
    )


def print_families() -> None:
    """What a cold program of each schedule costs."""
    ranks, microbatches = FAMILY_SIZE
    print(f"\ncold programs at {ranks} x {microbatches}, nanoseconds an operation")
    for name, family in SCHEDULES.items():
        if family.takes_order:
            continue
        program = build.build_program(name, ranks, microbatches, chunks_per_rank=family.chunks or 2)
        cold = best_seconds(partial(build_cold, program), 3)
        print(f"  {name:<24} {program.operations:>7} {cold * 1e9 / program.operations:>8.1f}")


async def fresh_requests(body: dict[str, object], count: int) -> float:
    """CPU time of the quickest fresh estimate of a plan, HTTP and store included."""
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings({"STAGEFARE_DATA_DIR": folder})
        await upgrade(settings.database_url)
        app = create_app(settings)
        async with app.lifespan():
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                seconds = []
                for number in range(count):
                    # Another claim is another estimate, of the same plan and the same work.
                    asked = {"plan": body, "asserted_iteration_seconds": 100.0 + number}
                    begin = time.process_time()
                    answer = await http.post("/v1/estimates", json=asked, timeout=120)
                    seconds.append(time.process_time() - begin)
                    answer.raise_for_status()
    return min(seconds)


def print_http() -> None:
    """How much of a fresh estimate is not the core's."""
    print("\nfresh estimates over HTTP (in process, SQLite)")
    for size in SIZES[:3]:
        plan = plan_of(*size)

        def compute(plan: Plan = plan) -> object:
            return estimate_plan(simulate_plan(resolve(plan)))

        core = best_seconds(compute, 3)
        stages = [
            {
                "forward_seconds": stage.forward_seconds,
                "backward_seconds": stage.backward_seconds,
                "activation_bytes": stage.activation_bytes,
                **(
                    {}
                    if stage.transfer_seconds is None
                    else {"transfer_seconds": stage.transfer_seconds}
                ),
            }
            for stage in plan.stages or ()
        ]
        body: dict[str, object] = {
            "costs": {"stages": stages},
            "parallelism": {"pipeline": size[0]},
            "schedule": {"kind": plan.schedule.kind, "chunks_per_rank": size[2]},
            "workload": {"microbatches": size[1], "microbatch_size": 1},
        }
        whole = asyncio.run(fresh_requests(body, 4))
        print(
            f"{size[0]:>4} x {size[1]:>4} x {size[2]:<2} {whole * 1e3:>8.1f} ms, "
            f"of it core {core * 1e3:.1f} ms, HTTP, documents and store {1 - core / whole:.0%}"
        )


def main() -> None:
    """Print all of it."""
    warm_up()
    print(f"{platform.processor() or platform.machine()}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as folder:
        library = compiled_loop(Path(folder))
        if library is None:
            print("no C compiler here, so nothing to hold the kernel against")
        print_sizes(library)
    print_links()
    print_families()
    print_http()


if __name__ == "__main__":
    main()
