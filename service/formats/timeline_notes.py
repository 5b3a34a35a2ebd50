"""What a picture of a timeline says in words and numbers, beside its rows and below them."""

from collections.abc import Sequence
from fractions import Fraction

from service.core.memory.live import LiveActivations
from service.core.schedules.bubble import Bubble
from service.core.schedules.cadence import Cadence
from service.core.schedules.effects import MicrobatchEffect
from service.core.schedules.timeline import Timeline
from service.formats.svg_parts import text
from service.formats.time_units import readable_time

__all__ = ["Note", "footer_notes", "rank_notes"]

# A column's heading, and a cell for each rank of the program.
Note = tuple[str, list[str]]


def rank_notes(
    timeline: Timeline, bubble: Bubble | None, live: Sequence[LiveActivations] | None
) -> list[Note]:
    """The columns beside the rows: heading, and a cell for each rank of the program."""
    columns = []
    if bubble:
        columns.append(("fill", [readable_time(time.fill) for time in bubble.ranks]))
        columns.append(("drain", [readable_time(time.drain) for time in bubble.ranks]))
        columns.append(("utilised", [f"{time.utilisation:.1%}" for time in bubble.ranks]))
    if live:
        # Activations of one microbatch on one stage, which is a chunk where a rank has several.
        heading = "peak chunks" if timeline.program.chunks_per_rank > 1 else "peak stages"
        columns.append((heading, [str(rank.peak_activations) for rank in live]))
    return columns


def footer_notes(
    left: float, bottom: float, cadence: Cadence | None, effects: Sequence[MicrobatchEffect]
) -> tuple[list[str], float]:
    """What stands below the axis, and where the page ends."""
    y = bottom + 52
    parts: list[str] = []
    if cadence:
        slowest = cadence.stages[cadence.slowest_stage]
        parts.append(text(left, y, "Slowest cadence", "b"))
        facts = f"stage {slowest.stage}: {readable_time(slowest.work)} of work a microbatch"
        if cadence.steady:
            pace = readable_time(cadence.steady.per_microbatch)
            facts += f"; the steady state takes {pace} a microbatch"
        parts.append(text(left + 130, y, facts))
        y += 26
    if effects:
        parts.append(text(left, y, "Microbatches", "b"))
        rows = [("makespan", "a microbatch", "idle")]
        rows += [
            (
                readable_time(effect.makespan),
                readable_time(Fraction(effect.per_microbatch)),
                f"{effect.idle_fraction:.1%}",
            )
            for effect in effects
        ]
        counts = ["", *(str(effect.microbatches) for effect in effects)]
        for count, cells in zip(counts, rows, strict=True):
            look = "c n" if not count else "n"
            parts.append(text(left + 160, y, count, "n b"))
            parts.extend(
                text(left + 250 + 100 * place, y, cell, look) for place, cell in enumerate(cells)
            )
            y += 19
        parts.append(text(left + 490, y - 19, "predicted, the microbatch size held fixed", "c"))
        y += 6
    return parts, round(y - 8 if parts else bottom + 40)
