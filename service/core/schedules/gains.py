"""What a given change of one stage's or one boundary's time would do, every order held fixed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput, Path, some_of
from service.core.schedules.critical_path import CriticalPath
from service.core.schedules.program import OpKind
from service.core.schedules.sensitivity import path_inputs, timed_kinds
from service.core.schedules.stage_times import StageTimes, operation_durations, operation_kinds
from service.core.schedules.timeline import Timeline
from service.core.schedules.transfers import Transfers
from service.core.units import MAX_SECONDS, PICOSECONDS_PER_SECOND, to_picoseconds, to_seconds

__all__ = ["Change", "Gain", "OperationChange", "TransferChange", "exact_gains"]


@dataclass(frozen=True, slots=True)
class OperationChange:
    """All operations of one kind on one stage take another time.

    Exactly one is given: `seconds`, the new time of each of them, or `factor`, by which the
    present time of each is multiplied. A new forward or backward is also that of the fused pairs
    that have no time of their own.
    """

    stage: int
    kind: OpKind
    seconds: float | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class TransferChange:
    """All transfers of one boundary and direction take another time, given as for operations.

    `gradient` says that it is the way back, from stage `target` to stage `source`.
    """

    source: int
    target: int
    gradient: bool
    seconds: float | None = None
    factor: float | None = None


Change = OperationChange | TransferChange


@dataclass(frozen=True, slots=True)
class Gain:
    """What one change alone does, in picoseconds; a loss is negative.

    `before` and `after` are the time of one operation or transfer: the longest one, where
    microbatches differ or a schedule of two directions has the boundary between two pairs of ranks.
    `gain` is the present makespan less `makespan`, exact. `bound` is what the derivative along the
    critical path says: `gain` is never more, and equal while the same chain sets the makespan. It
    is None in link mode, where queues have anomalies and nothing of the kind holds.
    """

    before: int
    after: int
    makespan: int
    gain: int
    bound: int | None


def exact_gains(
    timeline: Timeline, path: CriticalPath, changes: Sequence[Change]
) -> tuple[Gain, ...]:
    """Replay the timeline with each change alone, in the order of `changes`.

    `path` is a critical path of this timeline. The order of each rank stays as it is, also where a
    schedule would choose another one for the new times. New times are rounded to picoseconds, half
    to even. In link mode transfers queue anew, and one of another time occupies its links in
    proportion. What an operation exchanges itself occupies its links as long as before, so that it
    never takes less than that.

    Raises `InvalidInput` with every fault at `("changes", index, field)`: stages, kinds and
    boundaries that the plan does not have, not exactly one of seconds and factor, and times out of
    range.
    """
    faults: list[Fault] = []
    found = [
        _changed(timeline, change, ("changes", index), faults)
        for index, change in enumerate(changes)
    ]
    if faults:
        raise InvalidInput(faults)
    on_path, crossed = path.operations.operation, path_inputs(path)
    queues = timeline.transfers.links is not None
    gains = []
    for index, changed in enumerate(found):
        if changed is None:
            continue
        durations = operation_durations(timeline.program, changed.times)
        latencies = changed.transfers.latencies(timeline.program)
        try:
            makespan = int(changed.transfers.run(timeline.program, durations).makespan)
        except InvalidInput as invalid:  # the times are too long together
            faults += [Fault(f.code, ("changes", index), f.detail) for f in invalid.faults]
            continue
        saved = int((timeline.durations - durations)[on_path].sum())
        saved += int((timeline.latencies - latencies)[crossed].sum())
        gains.append(
            Gain(
                before=changed.before,
                after=changed.after,
                makespan=makespan,
                gain=timeline.makespan - makespan,
                bound=None if queues else saved,
            )
        )
    if faults:
        raise InvalidInput(faults)
    return tuple(gains)


@dataclass(frozen=True, slots=True, eq=False)
class _Changed:
    """The inputs of a timeline after one change, and the time that was changed."""

    before: int
    after: int
    times: StageTimes
    transfers: Transfers


def _changed(
    timeline: Timeline, change: Change, path: Path, faults: list[Fault]
) -> _Changed | None:
    """The changed inputs, or None after adding what is wrong with the change to `faults`."""
    if isinstance(change, OperationChange):
        return _changed_operation(timeline, change, path, faults)
    return _changed_transfer(timeline, change, path, faults)


def _changed_operation(
    timeline: Timeline, change: OperationChange, path: Path, faults: list[Fault]
) -> _Changed | None:
    program = timeline.program
    wrong = []
    if not 0 <= change.stage < program.stages:
        detail = f"the plan has the stages 0..{program.stages - 1}; got {change.stage}"
        wrong.append(Fault(FaultCode.OUT_OF_RANGE, (*path, "stage"), detail))
    kinds = timed_kinds(timeline)
    if change.kind not in kinds:
        timed = ", ".join(kind.name.lower() for kind in kinds)
        detail = f"the plan has times of {timed}; got {change.kind.name.lower()}"
        wrong.append(Fault(FaultCode.INCONSISTENT, (*path, "kind"), detail))
    known = not wrong
    before = timeline.times.of_kind(change.kind)[change.stage].tolist() if known else [0]
    after = _new_times(before, change, path, wrong)
    faults += wrong
    if wrong:
        return None
    changed = timeline.times.of_kind(change.kind).copy()
    changed[change.stage] = after
    transfers = timeline.transfers.with_operation_times(
        change.kind, change.stage, changed[change.stage]
    )
    times = transfers.lengthened(
        timeline.program, replace(timeline.times, **{change.kind.name.lower(): changed})
    )
    return _Changed(
        before=max(before),
        after=int(times.of_kind(change.kind)[change.stage].max()),
        times=times,
        transfers=transfers,
    )


def _changed_transfer(
    timeline: Timeline, change: TransferChange, path: Path, faults: list[Fault]
) -> _Changed | None:
    wrong = _boundary_faults(timeline, change, path)
    latencies = timeline.backward_latencies if change.gradient else timeline.forward_latencies
    # A schedule of two directions has the boundary twice, between other ranks.
    edges = [
        index
        for index, edge in enumerate(timeline.program.stage_edges)
        if (edge.source, edge.target) == (change.source, change.target)
    ]
    before = latencies[edges].ravel().tolist() if not wrong else [0]
    after = _new_times(before, change, path, wrong)
    faults += wrong
    if wrong:
        return None
    times = np.array(after, dtype=np.int64).reshape(len(edges), -1)
    return _Changed(
        before=max(before),
        after=max(after),
        times=timeline.times,
        transfers=timeline.transfers.with_times(edges, times, gradient=change.gradient),
    )


def _boundary_faults(timeline: Timeline, change: TransferChange, path: Path) -> list[Fault]:
    program = timeline.program
    targets = [edge.target for edge in program.stage_edges if edge.source == change.source]
    if not targets:
        sources = sorted({edge.source for edge in program.stage_edges})
        some = f"the stages {some_of(sources, 10)} hand on" if sources else "no stage hands on"
        detail = f"{some}; got {change.source}"
        return [Fault(FaultCode.INCONSISTENT, (*path, "source_stage"), detail)]
    if change.target not in targets:
        detail = f"stage {change.source} hands on to {some_of(targets, 10)}; got {change.target}"
        return [Fault(FaultCode.INCONSISTENT, (*path, "target_stage"), detail)]
    ranks = program.stage_ranks[0]
    if ranks[change.source] == ranks[change.target]:
        detail = f"both stages live on rank {ranks[change.source]}: nothing is transferred"
        return [Fault(FaultCode.INCONSISTENT, (*path, "target_stage"), detail)]
    if change.gradient and operation_kinds(program) == (OpKind.FORWARD,):
        detail = "the schedule runs forward only: no transfer goes backward"
        return [Fault(FaultCode.INCONSISTENT, (*path, "direction"), detail)]
    ends = change.source, change.target
    returns = {(e.source, e.target) for e in program.stage_edges if e.gradient}
    if change.gradient and ends not in returns:
        detail = "no tensor of this boundary needs a gradient: no transfer goes backward"
        return [Fault(FaultCode.INCONSISTENT, (*path, "direction"), detail)]
    return []


def _new_times(before: Sequence[int], change: Change, path: Path, faults: list[Fault]) -> list[int]:
    """The new time for each present one; what is wrong with several is told once, by the first."""
    known: dict[int, int] = {}
    for time in before:
        if time not in known:
            wrong: list[Fault] = []
            known[time] = _new_time(time, change, path, wrong)
            if wrong:
                faults += wrong
                break
    return [known.get(time, 0) for time in before]


def _new_time(before: int, change: Change, path: Path, faults: list[Fault]) -> int:
    """The new time in picoseconds, or 0 after adding to `faults`."""
    if change.seconds is not None and change.factor is not None:
        detail = "give either seconds or factor"
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, (*path, "factor"), detail))
    elif change.seconds is not None:
        try:
            return to_picoseconds(change.seconds, (*path, "seconds"))
        except InvalidInput as invalid:
            faults += invalid.faults
    elif change.factor is not None:
        return _scaled(before, change.factor, (*path, "factor"), faults)
    else:
        detail = "give the new time: seconds, or factor of the present one"
        faults.append(Fault(FaultCode.MISSING_FIELD, (*path, "seconds"), detail))
    return 0


def _scaled(before: int, factor: float, path: Path, faults: list[Fault]) -> int:
    if not isfinite(factor) or factor < 0:
        detail = f"a factor is finite and not negative; got {factor!r}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, path, detail))
        return 0
    after = round(before * Fraction(factor))
    if after > MAX_SECONDS * PICOSECONDS_PER_SECOND:
        detail = (
            f"the new time is at most {MAX_SECONDS:g} s; {factor:g} times {to_seconds(before):g} s "
            "is more"
        )
        faults.append(Fault(FaultCode.OUT_OF_RANGE, path, detail))
    elif after == 0 and before and factor:
        detail = f"{factor:g} times {before} ps is less than half a picosecond: give 0"
        faults.append(Fault(FaultCode.TOO_SMALL_TO_REPRESENT, path, detail))
    return after
