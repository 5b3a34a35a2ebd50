"""The routers of a torus as planes of a grid, side by side.

Links along the last two dimensions are lines, those that lead round to the other side are stubs at
the edges. A router's neighbours along the first dimension stand at its place in the planes beside.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import product
from math import ceil, prod
from re import compile as compile_expression

from service.core.topology.cluster import Cluster, Link, VertexKind
from service.core.topology.index import index_of
from service.formats.cluster_looks import (
    BOXES,
    LINES,
    line,
    load_colour,
    load_words,
    readable_rate,
)
from service.formats.cluster_overlay import Overlay
from service.formats.svg_parts import MARGIN, text

__all__ = ["TorusPicture", "torus_picture"]

_NAME = compile_expression(r"router(\d{1,4})(?:-(\d{1,4}))?(?:-(\d{1,4}))?")

# Routers that are drawn, and planes' edges beyond which they are cut off.
_MAX_DRAWN = 1_024
_MAX_SIDE = 64
_GAP = 34.0
_LEAST_CELL = 14.0

_Place = tuple[int, int, int]


@dataclass(slots=True)
class TorusPicture:
    """Its parts, where it ends, the kinds of links that it has, and what is cut off, in words."""

    bottom: float
    lines: list[str] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def torus_picture(
    cluster: Cluster, overlay: Overlay, top: float, width: float
) -> TorusPicture | None:
    """The torus of a cluster; None when its routers are not named by places in one."""
    routers = [one.name for one in cluster.vertices.values() if one.kind is VertexKind.ROUTER]
    places = _places(routers)
    if not places:
        return None
    return _Drawing(cluster, overlay, places, top, width).picture


def _places(routers: list[str]) -> Mapping[_Place, str]:
    """The routers by their places, planes first; nothing unless they fill a grid."""
    places: dict[_Place, str] = {}
    for name in routers:
        found = _NAME.fullmatch(name)
        if found is None:
            return {}
        numbers = [int(part) for part in found.groups() if part is not None]
        plane, row, column = (0, 0, *numbers)[-3:]
        places[plane, row, column] = name
    is_full = bool(places) and prod(_sizes(places)) == len(places) == len(routers)
    return places if is_full else {}


def _sizes(places: Iterable[_Place]) -> _Place:
    """How many planes, rows and columns there are."""
    planes, rows, columns = (1 + max(numbers) for numbers in zip(*places, strict=True))
    return planes, rows, columns


class _Drawing:
    def __init__(
        self,
        cluster: Cluster,
        overlay: Overlay,
        places: Mapping[_Place, str],
        top: float,
        width: float,
    ) -> None:
        self._cluster, self._overlay, self._places = cluster, overlay, places
        self._place_of = {name: place for place, name in places.items()}
        planes, rows, columns = self._sizes = _sizes(places)
        shown_rows, shown_columns = min(rows, _MAX_SIDE), min(columns, _MAX_SIDE)
        shown_rows = min(shown_rows, max(1, _MAX_DRAWN // shown_columns))
        shown_planes = min(planes, max(1, _MAX_DRAWN // (shown_rows * shown_columns)))
        self._shown = shown_planes, shown_rows, shown_columns
        room = width - 2 * MARGIN
        # As many planes beside each other as leaves their cells large enough to be seen.
        fitting = (
            count
            for count in range(shown_planes, 0, -1)
            if room / count - _GAP >= _LEAST_CELL * shown_columns
        )
        self._per_row = next(fitting, 1)
        self._cell = min(max((room / self._per_row - _GAP) / shown_columns, 6.0), 40.0)
        self._top = top + 34
        self._leads_round = False
        stacked = ceil(shown_planes / self._per_row)
        self._plane_height = shown_rows * self._cell + _GAP
        self.picture = TorusPicture(self._top + stacked * self._plane_height - 8)
        self._draw()

    def _centre(self, place: _Place) -> tuple[float, float]:
        plane, row, column = place
        x = MARGIN + (plane % self._per_row) * (self._shown[2] * self._cell + _GAP) + 12
        y = self._top + (plane // self._per_row) * self._plane_height
        return x + (column + 0.5) * self._cell, y + (row + 0.5) * self._cell

    def _draw(self) -> None:
        picture = self.picture
        sizes = " x ".join(str(size) for size in self._sizes if size > 1) or "1"
        title = f"accelerators' own network: torus of {sizes} routers"
        picture.boxes.append(text(MARGIN, self._top - 22, title, "b"))
        rates: dict[tuple[str, float], Link] = {}
        plain: dict[str, list[str]] = {}
        over: list[str] = []
        planes, rows, columns = map(range, self._shown)
        shown = list(product(planes, rows, columns))
        for place in shown:
            name = self._places[place]
            for link in index_of(self._cluster).leaving[name]:
                if self._cluster.vertices[link.target].kind is not VertexKind.ROUTER:
                    continue
                rates.setdefault((link.kind, link.bandwidth_bytes_per_second), link)
                d = self._way(place, link)
                if d is None:
                    continue
                found, share = self._overlay.of(_both(self._cluster, link))
                if found:
                    rate = readable_rate(link.bandwidth_bytes_per_second)
                    told = f"{link.name}: {rate}{load_words(share)}"
                    over.append(line(d, load_colour(share), 3.0, title=told))
                else:
                    plain.setdefault(LINES[link.kind].colour, []).append(d)
        picture.lines += [line("".join(dict.fromkeys(ds)), c, 1.4) for c, ds in plain.items()]
        picture.lines += over
        picture.links = list(rates.values())
        picture.boxes += map(self._router, shown)
        self._describe()

    def _way(self, place: _Place, link: Link) -> str | None:
        """A line to a neighbour in the plane that is shown, or a stub where it leads round."""
        other = self._place_of[link.target]
        if other[0] != place[0]:
            return None
        x, y = self._centre(place)
        steps = [there - here for here, there in zip(place[1:], other[1:], strict=True)]
        if steps in ([0, 1], [1, 0]) and all(
            a < b for a, b in zip(other, self._shown, strict=True)
        ):
            to_x, to_y = self._centre(other)
            return f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"
        if max(map(abs, steps)) > 1:
            self._leads_round = True
            half = self._cell / 2 + 5
            dx, dy = (0, _sign(-steps[0])) if steps[0] else (_sign(-steps[1]), 0)
            return f"M{x:.1f} {y:.1f}L{x + dx * half:.1f} {y + dy * half:.1f}"
        return None

    def _router(self, place: _Place) -> str:
        name = self._places[place]
        x, y = self._centre(place)
        side = min(self._cell * 0.56, 20.0)
        beside = [
            link.source
            for link in index_of(self._cluster).entering[name]
            if self._cluster.vertices[link.source].kind is VertexKind.GPU
        ]
        across = [
            (one, share)
            for one in index_of(self._cluster).leaving[name]
            if (to := self._place_of.get(one.target)) is not None and to[0] != place[0]
            for found, share in [self._overlay.of(_both(self._cluster, one))]
            if found
        ]
        look = BOXES[VertexKind.ROUTER]
        is_end = any(one in self._overlay.ends for one in beside)
        fill = look.fill
        title = f"{name}, beside {', '.join(beside)}" if beside else name
        if across:
            shares = [share for _, share in across if share is not None]
            fill = load_colour(max(shares, default=None))
            title += f"; on to {', '.join(one.target for one, _ in across)}"
        edge, thick = (load_colour(None), 2.5) if is_end else (look.edge, 1.0)
        return (
            f"<g><title>{escape(title)}</title>"
            f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" '
            f'height="{side:.1f}" rx="3" fill="{fill}" stroke="{edge}" '
            f'stroke-width="{thick:g}"/></g>'
        )

    def _describe(self) -> None:
        planes, rows, columns = self._sizes
        shown_planes, shown_rows, shown_columns = self._shown
        words = self.picture.words
        if planes > 1:
            words.append(
                f"{planes} planes of {rows} x {columns} routers, the first at the left: each router"
                " is joined to those at its place in the planes before and after it"
            )
            if self._overlay.capacities:
                words.append("a filled router has what is laid over on one of these links")
        if self._leads_round:
            words.append("lines that end at an edge lead round to the other side")
        if (rows, columns) != (shown_rows, shown_columns):
            words.append(f"of each plane {shown_rows} x {shown_columns} are drawn")
        if planes > shown_planes:
            words.append(f"{planes - shown_planes} more planes are not drawn")


def _both(cluster: Cluster, link: Link) -> list[Link]:
    """A link and the one back."""
    back = cluster.links.get((link.target, link.source))
    return [link] if back is None else [link, back]


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
