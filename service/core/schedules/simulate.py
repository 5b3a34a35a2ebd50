"""`simulate`: when every operation of a program starts and ends, and what made it wait.

Transfers take their latency whatever others do: any number fly at once. Links of limited capacity
are in `service.core.schedules.link_run`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.build import build_program
from service.core.schedules.kernels import last_ends, simulate_rows
from service.core.schedules.program import OpKind, Program

__all__ = [
    "MAX_PICOSECONDS",
    "Queues",
    "Run",
    "bare_makespans",
    "last_sends",
    "simulate",
    "warm_up",
]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

# No time may pass this, so that no sum of two leaves int64.
MAX_PICOSECONDS = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Queues:
    """What became of each bundle on the links, where links have a capacity. Times in picoseconds.

    Bundle i is that of input i of the program; where operations have bundles of their own that of
    operation o is `len(program.inputs) + o`.
    """

    arrival: Int64Array  # (bundles,)
    # (bundles,) the link on which it was last (the first of equals), -1 where it used none.
    bound_link: Int32Array
    # (bundles,) the bundle that it found on that link and waited for, -1 where the link was free.
    behind: Int64Array
    # What was settled, in sequence: operation o as o when its start was known, bundle b as
    # `operations + b` when it was served. Whatever follows from something else comes later.
    sequence: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Times of all operations, (..., operations); leading axes are runs of one program.

    `binding` is the index into `program.inputs` of the input that an operation waited for, and -1
    where it started as soon as its rank was free (or at time 0). `queues` is None where links have
    no capacity.
    """

    start: Int64Array
    end: Int64Array
    binding: Int32Array
    queues: Queues | None = None

    @property
    def makespan(self) -> Int64Array:
        """(...,) from time 0 to the last end."""
        latest: Int64Array = self.end.max(axis=-1)
        return latest


def simulate(
    program: Program, durations: Int64Array, latencies: Int64Array, *, blocking: bool = False
) -> Run:
    """Run every rank in its order, each operation as early as it may.

    An operation starts when its rank is free and all its inputs have arrived; an input arrives its
    latency after its producer ends. The binding input is the one that arrives last, if it arrives
    after the rank is free; of equal arrivals the one with the smaller latency, then the lower
    index. With `blocking` a rank is free only when all that its last operation sends has arrived.

    `durations` is (..., operations) and `latencies` (..., inputs), int64 picoseconds, not negative;
    leading axes are broadcast against each other.

    Raises `InvalidInput` on a negative time, on a wrong length, and when times could add up to more
    than `MAX_PICOSECONDS`.
    """
    leading = _check_lengths(program, durations, latencies)
    rows = int(np.prod(leading, dtype=np.int64))
    shape = (*leading, program.operations)
    duration_rows = _rows(durations, leading, rows)
    latency_rows = _rows(latencies, leading, rows)
    holds = np.zeros((rows, program.operations if blocking else 0), dtype=np.int64)
    for row in range(rows if blocking else 0):
        holds[row] = last_sends(program, latency_rows[row])[0]
    run, bits = _run(program, duration_rows, latency_rows, holds)
    # Looked at afterwards, as the loop sees every time anyway: one beyond the range spoils the run
    # and nothing else.
    # An operation and its transfer are at most twice what has the bits of both.
    if not 0 <= 2 * bits * program.operations <= MAX_PICOSECONDS:
        _check_range(program, duration_rows, latency_rows)
    return Run(run.start.reshape(shape), run.end.reshape(shape), run.binding.reshape(shape))


def bare_makespans(
    program: Program, durations: Int64Array, of_kinds: Int64Array
) -> tuple[int, int]:
    """The makespans with each of two sets of durations where transfers take no time.

    `durations` is (operations,); `of_kinds` is (2, kinds, microbatches or 1), what each kind of
    operation takes on any stage: by its own microbatch and, to be added, by that of its backward.
    Raises `InvalidInput` when times could add up to more than `MAX_PICOSECONDS`.
    """
    makespans = np.empty(2, dtype=np.int64)
    bits = last_ends(
        program.order,
        program.rank,
        program.ranks,
        program.input_offsets,
        program.inputs,
        program.kind,
        program.microbatch,
        program.backward_microbatch,
        durations,
        of_kinds,
        makespans,
    )
    if not 0 <= bits * program.operations <= MAX_PICOSECONDS:
        _check_range(program, durations, np.zeros(0, dtype=np.int64))
        _check_range(program, of_kinds[0], of_kinds[1])
    one, other = makespans.tolist()
    return one, other


def warm_up() -> None:
    """Compile (or load) and run the kernels once, so that no request pays for it."""
    program = build_program("gpipe", 2, 2)
    simulate(
        program,
        np.ones(program.operations, dtype=np.int64),
        np.zeros(len(program.inputs), dtype=np.int64),
    )


def last_sends(program: Program, latencies: Int64Array) -> tuple[Int64Array, Int64Array]:
    """How long after each operation's end the last of its values arrives, and which that is.

    `latencies` is (inputs,) ps. Two arrays of (operations,): picoseconds, and an index into
    `program.inputs` (the first of equals), which is 0 and -1 for operations that send nothing.
    """
    longest = np.zeros(program.operations, dtype=np.int64)
    np.maximum.at(longest, program.inputs, latencies)
    last = np.full(program.operations, -1, dtype=np.int64)
    slowest = np.flatnonzero(latencies == longest[program.inputs])[::-1]
    last[program.inputs[slowest]] = slowest  # of several the last written: the first
    return longest, last


def _run(
    program: Program, durations: Int64Array, latencies: Int64Array, holds: Int64Array
) -> tuple[Run, int]:
    """And the bits that any time has."""
    run = Run(
        np.empty(durations.shape, dtype=np.int64),
        np.empty(durations.shape, dtype=np.int64),
        np.empty(durations.shape, dtype=np.int32),
    )
    bits = simulate_rows(
        program.order,
        program.rank,
        program.ranks,
        program.input_offsets,
        program.inputs,
        durations,
        latencies,
        holds,
        run.start,
        run.end,
        run.binding,
    )
    return run, bits


def _rows(times: Int64Array, leading: tuple[int, ...], rows: int) -> Int64Array:
    spread = np.broadcast_to(times, (*leading, times.shape[-1]))
    return np.ascontiguousarray(spread.reshape(rows, times.shape[-1]), dtype=np.int64)


def _check_lengths(
    program: Program, durations: Int64Array, latencies: Int64Array
) -> tuple[int, ...]:
    faults = []
    for name, times, length in (
        ("durations", durations, program.operations),
        ("latencies", latencies, len(program.inputs)),
    ):
        if times.shape[-1] != length:
            detail = f"{name} has {length} entries; got {times.shape[-1]}"
            faults.append(Fault(FaultCode.WRONG_LENGTH, (name,), detail))
    if faults:
        raise InvalidInput(_negative(durations, latencies) + faults)
    return np.broadcast_shapes(durations.shape[:-1], latencies.shape[:-1])


def _check_range(program: Program, durations: Int64Array, latencies: Int64Array) -> None:
    """Refuse what is negative or could overflow.

    A long plan of long operations is held against what any chain of dependent operations can add up
    to: the number of operations on the longest chain, times the longest operation with the longest
    transfer.
    """
    faults = _negative(durations, latencies)
    if faults:
        raise InvalidInput(faults)
    longest = int(durations.max(initial=0)) + int(latencies.max(initial=0))
    if longest * program.operations <= MAX_PICOSECONDS:
        return
    each = np.ones(program.operations, dtype=np.int64)
    none = np.zeros((2, len(OpKind), 1), dtype=np.int64)
    chain_length, _ = bare_makespans(program, each, none)
    if chain_length * longest > MAX_PICOSECONDS:
        detail = (
            f"a chain of {chain_length} operations of up to {longest} ps with their transfers "
            f"could pass {MAX_PICOSECONDS} ps (53 days): give shorter times or fewer microbatches"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("costs",), detail)])


def _negative(durations: Int64Array, latencies: Int64Array) -> list[Fault]:
    return [
        Fault(
            FaultCode.OUT_OF_RANGE, (name,), f"{name} are not negative; got {int(times.min())} ps"
        )
        for name, times in (("durations", durations), ("latencies", latencies))
        if times.size and int(times.min()) < 0
    ]
