"""A timeline as a picture: one row a rank, one box an operation, idle time left open.

Made to be read: a legend, a time axis in a fitting unit, microbatch numbers where they fit, and on
request the fill, drain, utilisation and peak live activations of each rank beside its row, and the
slowest cadence and the effect of other microbatch counts below. Kinds differ in lightness and
height as well as in hue. Transfers are not drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.memory.live import LiveActivations
from service.core.schedules.bubble import Bubble
from service.core.schedules.cadence import Cadence
from service.core.schedules.effects import MicrobatchEffect
from service.core.schedules.program import OpKind
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.stage_times import operation_kinds
from service.core.schedules.timeline import Timeline
from service.formats.time_units import fitting_unit, readable_time
from service.formats.timeline_shapes import OTHER, Box, Line, row_shapes

__all__ = ["MAX_ROWS", "timeline_svg"]

MAX_ROWS = 512
# What keeps a picture well below a megabyte.
_MOST_BOXES = 20_000

_WIDTH = 1200.0
_MARGIN = 28.0
_TOP = 92.0
_NOTE_WIDTH = 72.0
_SMALLEST_LABELLED_ROW = 13.0


@dataclass(frozen=True, slots=True)
class _Look:
    """How one kind of operation is drawn; `height` is the share of the row's height."""

    name: str
    fill: str
    ink: str
    height: float = 1.0


_LOOKS = {
    OpKind.FORWARD: _Look("forward", "#1f5f9e", "#ffffff"),
    OpKind.BACKWARD: _Look("backward", "#f3b23c", "#2b2206"),
    OpKind.BACKWARD_INPUT: _Look("backward (inputs)", "#f3b23c", "#2b2206"),
    OpKind.BACKWARD_WEIGHT: _Look("backward (weights)", "#a65b2b", "#ffffff"),
    OpKind.FORWARD_BACKWARD: _Look("forward and backward", "#7b4a9c", "#ffffff"),
    OpKind.RECOMPUTE: _Look("recompute", "#2e9e83", "#ffffff", 0.62),
    OTHER: _Look("other microbatches", "#c5ccd6", "#5b6573"),
}

_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "font-size:12px;fill:#39424e}"
    ".h{font-size:19px;font-weight:600;fill:#10151c}.s{font-size:13px;fill:#525c69}"
    ".n{text-anchor:end;font-variant-numeric:tabular-nums}.c{fill:#6b7684;font-size:11px}"
    ".m{text-anchor:middle}.b{font-weight:600;fill:#10151c}"
)


@dataclass(frozen=True, slots=True)
class _Page:
    """Where things stand, in pixels."""

    line: Line
    ranks: tuple[int, ...]
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
    columns = _columns(bubble, live) if _pitch(len(ranks)) >= _SMALLEST_LABELLED_ROW else []
    page = _page(timeline, selection, ranks, len(columns))
    heading = title or _default_title(timeline)
    footer, height = _footer(page, cadence, effects)
    rows, binned = _rows(timeline, selection, page)
    body = [
        *_header(timeline, selection, heading, bubble, binned=binned),
        *_axis(page),
        *rows,
        *_notes(page, columns),
        *footer,
    ]
    return "\n".join(
        (
            _opening(height),
            f'<title id="timeline-title">{escape(heading)}</title>',
            f'<desc id="timeline-desc">{escape(_description(timeline, selection, bubble))}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect width="{_WIDTH:g}" height="{height:g}" fill="#ffffff"/>',
            *body,
            "</svg>\n",
        )
    )


def _opening(height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:g}" '
        f'viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-labelledby="timeline-title timeline-desc">'
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
    return text + " Transfers are not drawn."


def _pitch(rows: int) -> float:
    return min(max(900 / max(rows, 1), 7.0), 34.0)


def _page(timeline: Timeline, selection: Selection, ranks: tuple[int, ...], columns: int) -> _Page:
    start, end = selection.window(timeline)
    left = _MARGIN + 58
    width = _WIDTH - _MARGIN - left - columns * _NOTE_WIDTH
    pitch = _pitch(len(ranks))
    narrowest = max(2.0, len(ranks) * width / _MOST_BOXES * len(operation_kinds(timeline.program)))
    line = Line(start, end, left, width, narrowest)
    row = pitch - (5 if pitch > 18 else 1.5)
    return _Page(line, ranks, pitch, row, _TOP + len(ranks) * pitch)


def _header(
    timeline: Timeline,
    selection: Selection,
    heading: str,
    bubble: Bubble | None,
    *,
    binned: bool,
) -> list[str]:
    facts = [f"makespan {readable_time(timeline.makespan)}"]
    if bubble:
        facts.append(f"idle {bubble.idle_fraction:.1%}")
        if bubble.ideal_utilisation:
            facts.append(f"closed form: {bubble.ideal_utilisation.utilisation:.1%} utilised")
    facts.append("transfers not drawn")
    if binned:
        facts.append("narrow operations: share of time by kind")
    parts = [
        _text(_MARGIN, 38, heading, "h"),
        _text(_MARGIN, 60, " · ".join(facts), "s"),
    ]
    looks: list[int] = list(operation_kinds(timeline.program))
    if not selection.microbatches(timeline).all():
        looks.append(OTHER)
    x = _WIDTH - _MARGIN
    for kind in reversed(looks):
        look = _LOOKS[kind]
        x -= 7 * len(look.name)
        parts.append(_text(x, 38, look.name))
        tall = 14 * look.height
        parts.append(_rectangle(x - 20, 27 + (14 - tall), 14, tall, look.fill))
        x -= 36
    return parts


def _axis(page: _Page) -> list[str]:
    line = page.line
    parts = [
        _rectangle(line.left, page.top(i), line.width, page.row, "#eef1f5")
        for i in range(len(page.ranks))
    ]
    unit = fitting_unit(line.end)
    step = _tick_step(line.end - line.start)
    grid = []
    for tick in range(-(-line.start // step) * step, line.end + 1, step):
        x = line.left + (tick - line.start) / max(line.end - line.start, 1) * line.width
        grid.append(f"M{x:.1f} {_TOP - 4:g}V{page.bottom + 3:.1f}")
        amount = readable_time(tick, unit).removesuffix(f" {unit.symbol}")
        parts.append(_text(x, page.bottom + 18, amount, "c m"))
    parts.append(f'<path d="{"".join(grid)}" stroke="#d3d9e1" fill="none"/>')
    parts.append(_text(line.left - 12, page.bottom + 18, unit.symbol, "c n"))
    return parts


def _tick_step(length: int) -> int:
    """1, 2 or 5 times a power of ten, so that there are 5 to 12 steps (picoseconds)."""
    power = 1
    while power * 10 * 12 <= length:
        power *= 10
    return next((power * by for by in (1, 2, 5) if power * by * 12 >= length), power * 10)


def _rows(timeline: Timeline, selection: Selection, page: _Page) -> tuple[list[str], bool]:
    wanted = selection.microbatches(timeline)
    everyone = Selection(start=selection.start, end=selection.end).operations(timeline)
    on_rank = timeline.program.rank[everyone]
    parts: list[str] = []
    binned = False
    for index, rank in enumerate(page.ranks):
        first, stop = np.searchsorted(on_rank, [rank, rank + 1])
        shapes = row_shapes(timeline, everyone[first:stop], wanted, page.line)
        binned |= shapes.binned
        top = page.top(index)
        if page.pitch >= _SMALLEST_LABELLED_ROW or index % 8 == 0:
            parts.append(_text(page.line.left - 12, top + page.row / 2 + 4, f"rank {rank}", "n"))
        parts.extend(_boxes(shapes.boxes, top, page.row))
        if not shapes.binned:
            parts.extend(_numbers(shapes.boxes, top, page.row))
    return parts, binned


def _boxes(boxes: Sequence[Box], top: float, height: float) -> list[str]:
    """One path for each kind: a rectangle is then about twenty bytes."""
    paths: dict[int, list[str]] = {}
    for box in boxes:
        width = box.right - box.left
        whole = (box.bottom, box.top) == (0, 1)
        gap = min(width * 0.2, 1.0) if whole else 0.0
        tall = height * (_LOOKS[box.kind].height if whole else box.top - box.bottom)
        above = height - tall if whole else height * (1 - box.top)
        paths.setdefault(box.kind, []).append(
            f"M{box.left:.1f} {top + above:.1f}h{max(width - gap, 0.3):.1f}v{tall:.1f}"
            f"H{box.left:.1f}z"
        )
    return [
        f'<path fill="{_LOOKS[kind].fill}" d="{"".join(rectangles)}"/>'
        for kind, rectangles in sorted(paths.items())
    ]


def _numbers(boxes: Sequence[Box], top: float, height: float) -> list[str]:
    """Microbatch numbers of the boxes that are wide and tall enough."""
    size = min(11.0, height - 3)
    if size < 8:
        return []
    parts: dict[int, list[str]] = {}
    for box in boxes:
        if box.microbatch is None:
            continue
        label = str(box.microbatch)
        if box.right - box.left < len(label) * size * 0.6 + 4:
            continue
        x = (box.left + box.right - 1) / 2
        tall = height * _LOOKS[box.kind].height
        y = top + height - tall / 2 + size * 0.36
        parts.setdefault(box.kind, []).append(f'<tspan x="{x:.1f}" y="{y:.1f}">{label}</tspan>')
    return [
        f'<text class="m" style="font-size:{size:g}px;fill:{_LOOKS[kind].ink}">'
        f"{''.join(spans)}</text>"
        for kind, spans in sorted(parts.items())
    ]


def _columns(
    bubble: Bubble | None, live: Sequence[LiveActivations] | None
) -> list[tuple[str, list[str]]]:
    """The columns beside the rows: heading, and a cell for each rank of the program."""
    columns = []
    if bubble:
        columns.append(("fill", [readable_time(time.fill) for time in bubble.ranks]))
        columns.append(("drain", [readable_time(time.drain) for time in bubble.ranks]))
        columns.append(("utilised", [f"{time.utilisation:.1%}" for time in bubble.ranks]))
    if live:
        columns.append(("peak live", [str(rank.peak_activations) for rank in live]))
    return columns


def _notes(page: _Page, columns: Sequence[tuple[str, list[str]]]) -> list[str]:
    parts = []
    for place, (heading, cells) in enumerate(columns, start=1):
        x = page.line.left + page.line.width + place * _NOTE_WIDTH
        parts.append(_text(x, _TOP - 10, heading, "c n"))
        parts.extend(
            _text(x, page.top(index) + page.row / 2 + 4, cells[rank], "n")
            for index, rank in enumerate(page.ranks)
        )
    return parts


def _footer(
    page: _Page, cadence: Cadence | None, effects: Sequence[MicrobatchEffect]
) -> tuple[list[str], float]:
    """What stands below the axis, and where the page ends."""
    y = page.bottom + 52
    parts: list[str] = []
    if cadence:
        slowest = cadence.stages[cadence.slowest_stage]
        parts.append(_text(_MARGIN, y, "Slowest cadence", "b"))
        facts = f"stage {slowest.stage}: {readable_time(slowest.work)} of work a microbatch"
        if cadence.steady:
            pace = readable_time(cadence.steady.per_microbatch)
            facts += f"; the steady state takes {pace} a microbatch"
        parts.append(_text(_MARGIN + 130, y, facts))
        y += 26
    if effects:
        parts.append(_text(_MARGIN, y, "Microbatches", "b"))
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
            parts.append(_text(_MARGIN + 160, y, count, "n b"))
            parts.extend(
                _text(_MARGIN + 250 + 100 * place, y, cell, look)
                for place, cell in enumerate(cells)
            )
            y += 19
        parts.append(_text(_MARGIN + 490, y - 19, "predicted, the microbatch size held fixed", "c"))
        y += 6
    return parts, round(y - 8 if parts else page.bottom + 40)


def _text(x: float, y: float, content: str, look: str = "") -> str:
    styled = f' class="{look}"' if look else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{styled}>{escape(content)}</text>'


def _rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
    )
