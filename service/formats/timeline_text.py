"""A timeline as a table of equal slots, for terminals and reviews.

4 ranks, 4 microbatches, 1 slot = 6 ms
rank 0  F0 F1 F2 F3  .  .  . B0 B0 ...
"""

from collections.abc import Sequence
from math import gcd

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.memory.live import LiveActivations
from service.core.schedules.bubble import Bubble
from service.core.schedules.program import OpKind
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.timeline import Timeline
from service.formats.time_units import readable_time

__all__ = ["MAX_ROWS", "MAX_SLOTS", "timeline_text"]

MAX_SLOTS = 400
MAX_ROWS = 256


def timeline_text(
    timeline: Timeline,
    selection: Selection = EVERYTHING,
    *,
    bubble: Bubble | None = None,
    live: Sequence[LiveActivations] | None = None,
) -> str:
    """The slot table of the selected part; a row a rank, a column a slot.

    A slot is the longest time of which every shown start and end is a multiple. An operation has
    its letter and microbatch in each of its slots, an idle slot a dot. `bubble` adds fill, drain
    and utilisation beside each rank, `live` the peak of live activations.

    Raises `InvalidInput` when that needs more than `MAX_SLOTS` slots or `MAX_ROWS` rows.
    """
    ranks = selection.shown_ranks(timeline)
    operations = selection.operations(timeline)
    program, run = timeline.program, timeline.run
    window_start, window_end = selection.window(timeline)
    starts = np.maximum(run.start[operations], window_start)
    ends = np.minimum(run.end[operations], window_end)
    slot = max(
        gcd(
            window_end - window_start,
            *(starts - window_start).tolist(),
            *(ends - window_start).tolist(),
        ),
        1,
    )
    slots = (window_end - window_start) // slot
    _refuse_if_large(slots, len(ranks), slot)

    cells = {rank: ["."] * slots for rank in ranks}
    for operation, start, end in zip(
        operations.tolist(), starts.tolist(), ends.tolist(), strict=True
    ):
        label = _label(timeline, operation)
        row = cells[int(program.rank[operation])]
        for column in range((start - window_start) // slot, (end - window_start) // slot):
            row[column] = label
    width = max((len(cell) for row in cells.values() for cell in row), default=1)
    heading = (
        f"{program.schedule}: {program.ranks} ranks, {program.microbatches} microbatches, "
        f"makespan {readable_time(timeline.makespan)}, 1 slot = {readable_time(slot)}"
    )
    lines = [heading]
    notes = _notes(ranks, bubble, live)
    name_width = max((len(f"rank {rank}") for rank in ranks), default=0)
    if any(notes.values()):
        title = " " * name_width + "  " + " " * (slots * (width + 1) - 1)
        lines.append(title + "  " + _notes_title(bubble, live))
    for rank in ranks:
        line = " ".join(cell.rjust(width) for cell in cells[rank])
        lines.append(f"{f'rank {rank}':<{name_width}}  {line}  {notes[rank]}".rstrip())
    return "\n".join(lines) + "\n"


def _refuse_if_large(slots: int, rows: int, slot: int) -> None:
    faults = []
    if slots > MAX_SLOTS:
        detail = (
            f"a slot table is for times that are multiples of one slot, {MAX_SLOTS} slots at the "
            f"most; these share no longer slot than {readable_time(slot)}, which makes {slots}: "
            "take the SVG or the CSV, or a shorter part of a plan of equal slots"
        )
        faults.append(Fault(FaultCode.OUT_OF_RANGE, (), detail))
    if rows > MAX_ROWS:
        detail = f"a table has at most {MAX_ROWS} ranks; got {rows}: choose fewer"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("ranks",), detail))
    if faults:
        raise InvalidInput(faults)


def _label(timeline: Timeline, operation: int) -> str:
    """Letter and microbatch; with the stage in front where a rank has several (`5F0`)."""
    program = timeline.program
    if program.stages != program.ranks or program.directions > 1:
        return timeline.label(operation)
    return f"{OpKind(program.kind[operation]).letter}{program.microbatch[operation]}"


def _notes_title(bubble: Bubble | None, live: Sequence[LiveActivations] | None) -> str:
    title = f"{'fill':>9} {'drain':>9} {'busy':>6}" if bubble else ""
    return title + (f" {'peak':>5}" if live else "")


def _notes(
    ranks: Sequence[int], bubble: Bubble | None, live: Sequence[LiveActivations] | None
) -> dict[int, str]:
    notes = {}
    for rank in ranks:
        note = ""
        if bubble:
            time = bubble.ranks[rank]
            note += f"{readable_time(time.fill):>9} {readable_time(time.drain):>9} "
            note += f"{time.utilisation:>6.1%}"
        if live:
            note += f" {live[rank].peak_activations:>5}"
        notes[rank] = note
    return notes
