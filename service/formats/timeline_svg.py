"""A timeline as a picture: one row a rank, one box an operation, idle time by what it waits for.

Made to be read: a legend, a time axis in a fitting unit, fill, steady part and drain, microbatch
numbers where they fit, and on request the fill, drain, utilisation and peak live activations of
each rank beside its row, and the slowest cadence and the effect of other microbatch counts below.
Kinds differ in lightness and height as well as in hue; later chunks of a rank are lighter.
Transfers are drawn where a rank waits for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.memory.live import LiveActivations
from service.core.schedules.bubble import Bubble
from service.core.schedules.cadence import Cadence
from service.core.schedules.effects import MicrobatchEffect
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.stage_times import operation_kinds
from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import operation_waits
from service.formats.svg_parts import MARGIN, STYLE, opening, rectangle, text
from service.formats.time_units import fitting_unit, readable_time
from service.formats.timeline_looks import HATCH, LOOKS, ink_on, shade
from service.formats.timeline_notes import Note, footer_notes, rank_notes
from service.formats.timeline_shapes import (
    CONTENTION,
    DEPENDENCY,
    OTHER,
    SENDING,
    TRANSFER,
    Box,
    Line,
    chunk_numbers,
    rank_waits,
    row_shapes,
)

__all__ = ["MAX_ROWS", "timeline_svg"]

MAX_ROWS = 512
# What keeps a picture well below a megabyte.
_MOST_BOXES = 20_000

_WIDTH = 1200.0
_TOP = 104.0
_NOTE_WIDTH = 76.0
_SMALLEST_LABELLED_ROW = 13.0


@dataclass(frozen=True, slots=True)
class _Page:
    """Where things stand, in pixels."""

    line: Line
    ranks: tuple[int, ...]
    parts: int  # the most chunks (or directions) of a rank
    pitch: float  # from one row to the next
    row: float  # a row's height
    bottom: float  # of the last row

    def top(self, index: int) -> float:
        return _TOP + index * self.pitch


def timeline_svg(
    timeline: Timeline,
    selection: Selection = EVERYTHING,
    *,
    title: str | None = None,
    bubble: Bubble | None = None,
    live: Sequence[LiveActivations] | None = None,
    cadence: Cadence | None = None,
    effects: Sequence[MicrobatchEffect] = (),
) -> str:
    """The selected part of a timeline as one SVG document of bounded size.

    Columns and footer appear for what is given: `bubble` (fill, drain, utilisation), `live` (peak
    live activations), `cadence` (slowest stage, pace of the steady state), `effects`.

    Raises `InvalidInput` when more than `MAX_ROWS` ranks are to be shown.
    """
    ranks = selection.shown_ranks(timeline)
    if len(ranks) > MAX_ROWS:
        detail = f"a picture has at most {MAX_ROWS} ranks; got {len(ranks)}: choose fewer"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("ranks",), detail)])
    tall = _pitch(len(ranks)) >= _SMALLEST_LABELLED_ROW
    columns = rank_notes(timeline, bubble, live) if tall else []
    page = _page(timeline, selection, ranks, len(columns))
    heading = title or _default_title(timeline)
    footer, height = footer_notes(MARGIN, page.bottom, cadence, effects)
    rows, kinds, binned = _rows(timeline, selection, page)
    body = [
        *_header(timeline, page, heading, bubble, kinds, binned=binned),
        *_phases(timeline, page),
        *_axis(timeline, page),
        *rows,
        *_notes(page, columns),
        *footer,
    ]
    return "\n".join(
        (
            opening(_WIDTH, height, "timeline"),
            f'<title id="timeline-title">{escape(heading)}</title>',
            f'<desc id="timeline-desc">{escape(_description(timeline, selection, bubble))}</desc>',
            f"<style>{STYLE}</style>",
            HATCH,
            f'<rect width="{_WIDTH:g}" height="{height:g}" fill="#ffffff"/>',
            *body,
            "</svg>\n",
        )
    )


def _default_title(timeline: Timeline) -> str:
    program = timeline.program
    return (
        f"{program.schedule} · {_count(program.ranks, 'rank')} · "
        f"{_count(program.microbatches, 'microbatch', 'es')}"
    )


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _description(timeline: Timeline, selection: Selection, bubble: Bubble | None) -> str:
    start, end = selection.window(timeline)
    text = (
        f"Timeline of the {timeline.program.schedule} schedule: one row for each of "
        f"{len(selection.shown_ranks(timeline))} ranks, from {readable_time(start)} to "
        f"{readable_time(end)}. The iteration takes {readable_time(timeline.makespan)}."
    )
    if bubble:
        text += f" Ranks are idle {bubble.idle_fraction:.1%} of it."
    text += " Time between operations is coloured by what the rank waits for."
    if timeline.program.chunks_per_rank > 1:
        text += " Peaks count activations of one microbatch on one chunk."
    return text


def _pitch(rows: int) -> float:
    return min(max(900 / max(rows, 1), 7.0), 34.0)


def _page(timeline: Timeline, selection: Selection, ranks: tuple[int, ...], columns: int) -> _Page:
    start, end = selection.window(timeline)
    left = MARGIN + 58
    width = _WIDTH - MARGIN - left - columns * _NOTE_WIDTH
    pitch = _pitch(len(ranks))
    # Waits and sending are three more kinds at the most, as a rank seldom knows all four.
    kinds = len(operation_kinds(timeline.program)) + 3
    narrowest = max(2.0, len(ranks) * width / _MOST_BOXES * kinds)
    line = Line(start, end, left, width, narrowest)
    row = pitch - (5 if pitch > 18 else 1.5)
    parts = int(chunk_numbers(timeline).max()) + 1
    return _Page(line, ranks, parts, pitch, row, _TOP + len(ranks) * pitch)


def _header(
    timeline: Timeline,
    page: _Page,
    heading: str,
    bubble: Bubble | None,
    kinds: set[int],
    *,
    binned: bool,
) -> list[str]:
    """Title and facts on the left, on the right what the colours mean: work above, waits below."""
    facts = [f"makespan {readable_time(timeline.makespan)}"]
    if bubble:
        facts.append(f"idle {bubble.idle_fraction:.1%}")
        if bubble.ideal_utilisation:
            facts.append(f"closed form: {bubble.ideal_utilisation.utilisation:.1%} utilised")
    if page.parts > 1 and not binned:
        two_way = timeline.program.directions > 1
        facts.append("lighter: the other direction" if two_way else "lighter: later chunks")
    if binned:
        facts.append("narrow operations: share of time by kind")
    parts = [
        text(MARGIN, 36, heading, "h"),
        text(MARGIN, 58, " · ".join(facts), "s"),
    ]
    work: list[int] = [*operation_kinds(timeline.program), *((OTHER,) if OTHER in kinds else ())]
    shades = 1 if binned else min(page.parts, 4)
    parts += _legend(36, [(kind, shades if kind >= 0 else 1) for kind in work])
    idle = (SENDING, DEPENDENCY, CONTENTION, TRANSFER)
    parts += _legend(58, [(kind, 1) for kind in idle if kind in kinds], hatched="fill, drain")
    return parts


def _legend(y: float, entries: Sequence[tuple[int, int]], hatched: str = "") -> list[str]:
    """Kinds in so many shades, to the left from the right edge; a hatched one before them."""
    parts = []
    x = _WIDTH - MARGIN
    for kind, shades in reversed(entries):
        look = LOOKS[kind]
        x -= 6.4 * len(look.name)
        parts.append(text(x, y, look.name))
        tall = 14 * look.height
        for number in reversed(range(shades)):
            x -= 20 if number == shades - 1 else 8
            wide = 14 if number == shades - 1 else 8
            fill = shade(kind, number, shades)
            parts.append(rectangle(x, y - 11 + (14 - tall), wide, tall, fill))
        x -= 16
    if hatched:
        x -= 6.4 * len(hatched)
        parts.append(text(x, y, hatched))
        parts.append(rectangle(x - 20, y - 11, 14, 14, "url(#hatch)"))
    return parts


def _phases(timeline: Timeline, page: _Page) -> list[str]:
    """Above the rows: until all ranks have begun, while all are at it, since the first is done.

    With few microbatches one is done before another begins, and nothing is steady.
    """
    begun, done = int(timeline.first_start.max()), int(timeline.last_end.min())
    marks = [("fill", 0, min(begun, done)), ("drain", max(begun, done), timeline.makespan)]
    if begun < done:
        marks.insert(1, ("steady", begun, done))
    parts, lines = [], []
    for name, start, end in marks:
        left, right = page.line.pixels(np.array([start, end], dtype=np.int64)).tolist()
        if right - left < 2:
            continue
        lines.append(f"M{left + 1:.1f} {_TOP - 7:g}v-4H{right - 1:.1f}v4")
        if right - left > 7 * len(name):
            parts.append(text((left + right) / 2, _TOP - 15, name, "c m"))
    if lines:
        parts.append(f'<path d="{"".join(lines)}" stroke="#6b7684" fill="none"/>')
    return parts


def _axis(timeline: Timeline, page: _Page) -> list[str]:
    line = page.line
    parts = []
    for index, rank in enumerate(page.ranks):
        ends = np.array([timeline.first_start[rank], timeline.last_end[rank]], dtype=np.int64)
        left, right = line.pixels(ends).tolist()
        top = page.top(index)
        parts.append(rectangle(line.left, top, line.width, page.row, "url(#hatch)"))
        parts.append(rectangle(left, top, max(right - left, 0.0), page.row, "#eef1f5"))
    unit = fitting_unit(line.end)
    step = _tick_step(line.end - line.start)
    grid = []
    for tick in range(-(-line.start // step) * step, line.end + 1, step):
        x = line.left + (tick - line.start) / max(line.end - line.start, 1) * line.width
        grid.append(f"M{x:.1f} {_TOP - 4:g}V{page.bottom + 3:.1f}")
        amount = readable_time(tick, unit).removesuffix(f" {unit.symbol}")
        parts.append(text(x, page.bottom + 18, amount, "c m"))
    parts.append(f'<path d="{"".join(grid)}" stroke="#d3d9e1" fill="none"/>')
    parts.append(text(line.left - 12, page.bottom + 18, unit.symbol, "c n"))
    return parts


def _tick_step(length: int) -> int:
    """1, 2 or 5 times a power of ten, so that there are 5 to 12 steps (picoseconds)."""
    power = 1
    while power * 10 * 12 <= length:
        power *= 10
    return next((power * by for by in (1, 2, 5) if power * by * 12 >= length), power * 10)


def _rows(
    timeline: Timeline, selection: Selection, page: _Page
) -> tuple[list[str], set[int], bool]:
    """The rows, the kinds that are drawn in them, and whether any of them is drawn in bins."""
    wanted = selection.microbatches(timeline)
    everyone = Selection(start=selection.start, end=selection.end).operations(timeline)
    on_rank = timeline.program.rank[everyone]
    waits = operation_waits(timeline)
    parts: list[str] = []
    kinds: set[int] = set()
    binned = False
    for index, rank in enumerate(page.ranks):
        first, stop = np.searchsorted(on_rank, [rank, rank + 1])
        shapes = row_shapes(
            timeline, everyone[first:stop], wanted, page.line, rank_waits(timeline, waits, rank)
        )
        binned |= shapes.binned
        kinds |= {box.kind for box in shapes.boxes}
        top = page.top(index)
        if page.pitch >= _SMALLEST_LABELLED_ROW or index % 8 == 0:
            parts.append(text(page.line.left - 12, top + page.row / 2 + 4, f"rank {rank}", "n"))
        parts.extend(_boxes(shapes.boxes, top, page))
        if not shapes.binned:
            parts.extend(_numbers(shapes.boxes, top, page))
    return parts, kinds, binned


def _boxes(boxes: Sequence[Box], top: float, page: _Page) -> list[str]:
    """One path for each colour: a rectangle is then about twenty bytes."""
    height = page.row
    paths: dict[str, list[str]] = {}
    for box in boxes:
        width = box.right - box.left
        whole = (box.bottom, box.top) == (0, 1)
        gap = min(width * 0.2, 1.0) if whole else 0.0
        tall = height * (LOOKS[box.kind].height if whole else box.top - box.bottom)
        above = height - tall if whole else height * (1 - box.top)
        paths.setdefault(shade(box.kind, box.part, page.parts), []).append(
            f"M{box.left:.1f} {top + above:.1f}h{max(width - gap, 0.3):.1f}v{tall:.1f}"
            f"H{box.left:.1f}z"
        )
    return [
        f'<path fill="{fill}" d="{"".join(rectangles)}"/>'
        for fill, rectangles in sorted(paths.items())
    ]


def _numbers(boxes: Sequence[Box], top: float, page: _Page) -> list[str]:
    """Microbatch numbers of the boxes that are wide and tall enough."""
    height = page.row
    size = min(11.0, height - 3)
    if size < 8:
        return []
    parts: dict[str, list[str]] = {}
    for box in boxes:
        if box.microbatch is None:
            continue
        label = str(box.microbatch)
        if box.right - box.left < len(label) * size * 0.6 + 4:
            continue
        x = (box.left + box.right - 1) / 2
        tall = height * LOOKS[box.kind].height
        y = top + height - tall / 2 + size * 0.36
        ink = ink_on(shade(box.kind, box.part, page.parts))
        parts.setdefault(ink, []).append(f'<tspan x="{x:.1f}" y="{y:.1f}">{label}</tspan>')
    return [
        f'<text class="m" style="font-size:{size:g}px;fill:{ink}">{"".join(spans)}</text>'
        for ink, spans in sorted(parts.items())
    ]


def _notes(page: _Page, columns: Sequence[Note]) -> list[str]:
    parts = []
    for place, (heading, cells) in enumerate(columns, start=1):
        x = page.line.left + page.line.width + place * _NOTE_WIDTH
        parts.append(text(x, _TOP - 10, heading, "c n"))
        parts.extend(
            text(x, page.top(index) + page.row / 2 + 4, cells[rank], "n")
            for index, rank in enumerate(page.ranks)
        )
    return parts
