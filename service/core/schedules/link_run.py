"""`simulate_links`: a program whose messages queue on links, event by event."""

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.bundles import Bundles
from service.core.schedules.event_kernels import run_events
from service.core.schedules.program import OpKind, Program
from service.core.schedules.simulate import MAX_PICOSECONDS, Queues, Run
from service.core.schedules.stage_times import input_microbatches

__all__ = ["exchange_order", "ready_times", "service_order", "simulate_links"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


def simulate_links(
    program: Program,
    durations: Int64Array,
    bundles: Bundles,
    input_kinds: Int32Array,
    own_kinds: Int32Array | None = None,
) -> Run:
    """Run every rank in its order, each operation as early as it may, messages queueing on links.

    `durations` is (operations,) picoseconds. `input_kinds` (inputs,) says which of `bundles` each
    input of the program is; `own_kinds` (operations,), where it is given, which one an operation
    sends and awaits itself while it runs, -1 for none.

    The bundle of an input is ready when its producer ends, that of an operation when the operation
    starts. Each link serves the bundles of inputs first in, first out: one that is ready at t holds
    a link that is free from f on during [max(t, f), max(t, f) + occupied), on each of its links by
    itself, and arrives its latency after the last of these ends. While a link has none of these it
    serves the bundles of operations, first in, first out among themselves, and goes on with one
    that was interrupted: long exchanges let short messages pass, as links that are shared fairly
    nearly do.
    Such a bundle is done on a link when that has given it the time it occupies it, and arrives its
    latency after it is done on the last one. An operation starts when its rank is free
    and all its inputs have arrived; it ends after its duration, or when its own bundle arrives if
    that is later, and then its rank is free. What an operation waited for is told as by `simulate`,
    where the latency of an input is now the whole time from its producer's end to its arrival.

    Bundles are served one at a time: the next is, of all that are not served and whose ready time
    follows from those that are, the one that is least by (ready time, sender's rank, stage,
    microbatch, forward before backward, target stage). An operation's own bundle has the
    operation's stage for its target, and a fused pair's own that of its forward. Operations and
    bundles that take no time follow at the same instant from what was served: such a bundle is
    taken in its turn among those that are still waiting, and overtakes none that was served. A
    bundle without links waits for nobody and follows at once.

    Raises `InvalidInput` when a time is negative or passes `MAX_PICOSECONDS`, and on wrong lengths.
    """
    kinds = input_kinds if own_kinds is None else np.concatenate((input_kinds, own_kinds))
    _check(program, durations, bundles, kinds, own=own_kinds is not None)
    start, end = np.empty((2, program.operations), dtype=np.int64)
    binding = np.empty(program.operations, dtype=np.int32)
    arrival = np.zeros(len(kinds), dtype=np.int64)
    bound_link = np.full(len(kinds), -1, dtype=np.int32)
    behind = np.full(len(kinds), -1, dtype=np.int64)
    sequence = np.empty(program.operations + len(kinds), dtype=np.int64)
    settled = run_events(
        program.rank_offsets,
        program.rank,
        program.input_offsets,
        program.inputs,
        np.ascontiguousarray(durations, dtype=np.int64),
        kinds.astype(np.int32),
        _priorities(program, own=own_kinds is not None),
        bundles.offsets,
        bundles.link,
        bundles.occupied,
        bundles.latency,
        bundles.links,
        MAX_PICOSECONDS,
        start,
        end,
        binding,
        arrival,
        bound_link,
        behind,
        sequence,
    )
    if settled < 0:
        detail = (
            f"operations and their transfers pass {MAX_PICOSECONDS} ps (53 days): give shorter "
            "times or fewer microbatches"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("costs",), detail)])
    return Run(start, end, binding, Queues(arrival, bound_link, behind, sequence[:settled]))


def service_order(program: Program, queues: Queues) -> Int64Array:
    """The bundles of inputs in the sequence in which they were served."""
    bundles = queues.sequence - program.operations
    served: Int64Array = bundles[(bundles >= 0) & (bundles < len(program.inputs))]
    return served


def exchange_order(program: Program, queues: Queues) -> Int64Array:
    """The operations that exchanged something themselves, in the sequence of their turns."""
    operations = queues.sequence - program.operations - len(program.inputs)
    exchanging: Int64Array = operations[operations >= 0]
    return exchanging


def ready_times(program: Program, run: Run, bundles: Int64Array) -> Int64Array:
    """(bundles,) when each of these bundles was ready, in picoseconds."""
    messages = len(program.inputs)
    sent = bundles < messages
    ready = np.empty(len(bundles), dtype=np.int64)
    ready[sent] = run.end[program.inputs[bundles[sent]]]
    ready[~sent] = run.start[bundles[~sent] - messages]
    return ready


def _priorities(program: Program, *, own: bool) -> Int64Array:
    """(bundles,) who goes first of bundles that are ready at the same time: the lower number."""
    # Senders by rank, then stage; the product with microbatches and stages stays within int64.
    pairs = program.stage_ranks.astype(np.int64) * program.stages + np.arange(program.stages)
    place = np.unique(pairs, return_inverse=True)[1].reshape(pairs.shape)

    def number(
        stage: npt.NDArray[np.integer],
        microbatch: npt.NDArray[np.integer],
        backward: npt.NDArray[np.bool_],
        target: npt.NDArray[np.integer],
    ) -> Int64Array:
        sender = place[microbatch % program.directions, stage]
        turn = (sender * program.microbatches + microbatch) * 2 + backward
        turns: Int64Array = turn * program.stages + target
        return turns

    ends = np.array([(e.source, e.target) for e in program.stage_edges], np.int64).reshape(-1, 2)
    gradient = program.input_gradient
    sources, targets = ends[program.input_edges].T
    of_inputs = number(
        np.where(gradient, targets, sources),
        input_microbatches(program),
        gradient,
        np.where(gradient, sources, targets),
    )
    if not own:
        return of_inputs
    backward = np.isin(program.kind, (OpKind.FORWARD, OpKind.FORWARD_BACKWARD), invert=True)
    of_operations = number(program.stage, program.microbatch, backward, program.stage)
    return np.concatenate((of_inputs, of_operations))


def _check(
    program: Program, durations: Int64Array, bundles: Bundles, kinds: Int32Array, *, own: bool
) -> None:
    faults = []
    expected = len(program.inputs) + program.operations * own
    for name, given, length in (
        ("durations", len(durations), program.operations),
        ("kinds", len(kinds), expected),
    ):
        if given != length:
            detail = f"{name} have {length} entries; got {given}"
            faults.append(Fault(FaultCode.WRONG_LENGTH, (name,), detail))
    for name, times in (
        ("durations", durations),
        ("occupied", bundles.occupied),
        ("latency", bundles.latency),
    ):
        least, most = int(times.min(initial=0)), int(times.max(initial=0))
        if least < 0 or most >= MAX_PICOSECONDS:
            detail = f"{name} lie between 0 and {MAX_PICOSECONDS - 1} ps; got {least} to {most}"
            faults.append(Fault(FaultCode.OUT_OF_RANGE, (name,), detail))
    needed = kinds[: len(program.inputs)]
    if needed.size and (needed.min() < 0 or kinds.max() >= bundles.kinds):
        detail = f"each input is one of {bundles.kinds} kinds of bundles, numbered from 0"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("kinds",), detail))
    if faults:
        raise InvalidInput(faults)
