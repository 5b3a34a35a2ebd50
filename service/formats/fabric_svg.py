"""A fabric as a picture: hosts below, leaves or rails above them, spines at the top.

Hosts with the same devices at the same switches are one box with their number, and rows that would
be too long are cut short, so that the picture of any cluster is readable and small. A path or a
load can be laid over it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from service.core.topology.cluster import Cluster, Link, LinkKind
from service.core.topology.uplinks import uplinks_by_likeness
from service.formats.cluster_legend import legend, overlay_notes
from service.formats.cluster_looks import (
    BOXES,
    DIMMED,
    LINES,
    MARK,
    box,
    line,
    load_colour,
    load_words,
    readable_rate,
    stroke_width,
)
from service.formats.cluster_overlay import NOTHING, Overlay
from service.formats.fabric_view import FabricView, HostItem, view_fabric
from service.formats.svg_parts import MARGIN, fitted, framed, text
from service.formats.torus_svg import TorusPicture, torus_picture

__all__ = ["fabric_svg"]

_WIDTH = 1200.0
_TOP = 96.0
_ROW_GAP = 92.0
_BOX, _TALL_BOX, _HOST_BOX = 36.0, 84.0, 64.0
# Lines beyond this number are drawn in few paths, without a title of their own.
_MAX_TITLED_LINES = 160


@dataclass(frozen=True, slots=True)
class _Spot:
    left: float
    top: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class _Line:
    links: tuple[Link, ...]
    widest: Link
    d: str


def fabric_svg(cluster: Cluster, *, title: str, overlay: Overlay = NOTHING) -> str:
    """The picture of a whole cluster, of bounded size whatever the cluster's."""
    along = {
        end
        for link in cluster.links.values()
        if overlay.ends and link.resource in overlay.capacities
        for end in (link.source, link.target)
    }
    view = view_fabric(cluster, (*overlay.ends, *sorted(along)))
    page = _Page(cluster, view, overlay)
    facts = _facts(cluster, view)
    drawn = [*page.lines()]
    torus = torus_picture(cluster, overlay, page.bottom + 18, _WIDTH)
    bottom = page.bottom if torus is None else torus.bottom
    of_torus = [] if torus is None else torus.links
    key, y = legend([*(one.widest for one in drawn), *of_torus], bottom + 38, _WIDTH)
    notes, height = _notes(cluster, view, overlay, torus, y + 26)
    words = (
        f"Fabric of {facts}. Hosts at the bottom, then leaves, then spines. Lines are links, the"
        " wider the faster."
    )
    if overlay.note:
        words += f" Laid over it: {overlay.note}."
    return framed(
        (
            *_draw(drawn, overlay),
            *page.boxes(),
            *(() if torus is None else (*torus.lines, *torus.boxes)),
            *key,
            *notes,
        ),
        size=(_WIDTH, height),
        name="fabric",
        heading=title,
        facts=facts,
        description=words,
    )


def _facts(cluster: Cluster, view: FabricView) -> str:
    hosts, gpus = len(cluster.hosts), len(cluster.devices)
    names = ("leaves", "spines", "core switches")
    tiers = [f"{len(row.shown) + row.hidden:,} {names[min(row.tier, 3) - 1]}" for row in view.rows]
    return " · ".join([f"{hosts:,} hosts", f"{gpus:,} GPUs", *tiers])


class _Page:
    """Where everything stands."""

    def __init__(self, cluster: Cluster, view: FabricView, overlay: Overlay) -> None:
        self._cluster, self._view, self._overlay = cluster, view, overlay
        self._spots: dict[str, _Spot] = {}
        # What a switch has of its row, from left to right.
        self._room: dict[str, tuple[float, float]] = {}
        self._more: list[tuple[_Spot, str]] = []
        self._hosts: list[tuple[_Spot, HostItem]] = []
        self._ratios = {
            name: alike.oversubscription_ratio
            for alike in uplinks_by_likeness(cluster)
            if alike.oversubscription_ratio > 1.0005
            for name in alike.switches
        }
        y = _TOP
        for row in reversed(view.rows):
            y = self._place_row(row.shown, row.hidden, y) + _ROW_GAP
        y = self._place_hosts(y)
        if view.domains:
            y = self._place_domains(y + 48)
        self.bottom = y

    def _place_row(self, names: Sequence[str], hidden: int, top: float) -> float:
        slots = len(names) + (hidden > 0)
        pitch = (_WIDTH - 2 * MARGIN) / max(slots, 1)
        wide = min(pitch - min(6.0, pitch * 0.2), 120.0)
        tall = _BOX if wide >= 44 else _TALL_BOX
        for number, name in enumerate(names):
            left = MARGIN + number * pitch + (pitch - wide) / 2
            self._spots[name] = _Spot(left, top, wide, tall)
            self._room[name] = MARGIN + number * pitch, MARGIN + (number + 1) * pitch
        if hidden:
            left = _WIDTH - MARGIN - (pitch + wide) / 2
            self._more.append((_Spot(left, top, wide, tall), f"+{hidden:,}"))
        return top + tall

    def _place_hosts(self, top: float) -> float:
        items = self._view.items
        leaves = [frozenset(far for far in item.plugs if far in self._room) for item in items]
        blocks = set(leaves)
        apart = all(blocks) and sum(map(len, blocks)) == len(frozenset().union(*blocks))
        pitch = (_WIDTH - 2 * MARGIN) / max(len(items) + (self._view.hidden_hosts > 0), 1)
        for number, (item, own) in enumerate(zip(items, leaves, strict=True)):
            left, right = MARGIN + number * pitch, MARGIN + (number + 1) * pitch
            if apart:  # below the leaves that it shares with its like
                ends = [end for far in own for end in self._room[far]]
                pitch = (max(ends) - min(ends)) / leaves.count(own)
                left = min(ends) + leaves[:number].count(own) * pitch
                right = left + pitch
            wide = min(right - left - 4, 200.0)
            spot = _Spot((left + right - wide) / 2, top, wide, _HOST_BOX)
            self._hosts.append((spot, item))
        if self._view.hidden_hosts:
            edge = max((place.left + place.width for place, _ in self._hosts), default=MARGIN)
            left = min(max(edge + 6, _WIDTH - MARGIN - 120), _WIDTH - MARGIN - 24)
            wide = _WIDTH - MARGIN - left
            label = f"+{self._view.hidden_hosts:,}" + (" hosts" if wide > 80 else "")
            self._more.append((_Spot(left, top, wide, _HOST_BOX), label))
        return top + _HOST_BOX

    def _place_domains(self, top: float) -> float:
        for name in self._view.domains:
            above = [place for place, item in self._hosts if name in item.plugs]
            left = min(place.left for place in above)
            right = max(place.left + place.width for place in above)
            self._spots[name] = _Spot(left, top, right - left, _BOX)
            top += _BOX + 12
        return top - 12

    def lines(self) -> Iterator[_Line]:
        """From the top, so that what is nearer to hosts lies over what is farther."""
        for (low, high), links in self._view.trunks.items():
            below, above = self._spots[low], self._spots[high]
            d = f"M{below.centre:.1f} {below.top:.1f}L{above.centre:.1f} {above.bottom:.1f}"
            yield _Line(links, _widest(links), d)
        for (one, other), links in self._view.peers.items():
            ends = sorted((self._spots[one], self._spots[other]), key=lambda spot: spot.left)
            left, right = ends[0].centre, ends[1].centre
            over = ends[0].top - min(16 + (right - left) / 12, 48)
            d = f"M{left:.1f} {ends[0].top:.1f}Q{(left + right) / 2:.1f} {over:.1f}"
            yield _Line(links, _widest(links), f"{d} {right:.1f} {ends[1].top:.1f}")
        for place, item in self._hosts:
            drawn = [far for far in item.plugs if far in self._spots]
            for number, far in enumerate(drawn, start=1):
                x = place.left + place.width * number / (len(drawn) + 1)
                end, links = self._spots[far], item.plugs[far]
                y, to = (place.top, end.bottom) if end.top < place.top else (place.bottom, end.top)
                over = end.centre if end.top < place.top else x
                d = f"M{x:.1f} {y:.1f}L{over:.1f} {to:.1f}"
                yield _Line(links, _widest(links), d)

    def boxes(self) -> Iterator[str]:
        """Switches, hosts, and what stands for those that are not shown."""
        for name, spot in self._spots.items():
            vertex = self._cluster.vertices[name]
            ratio = self._ratios.get(name)
            title = f"{name} ({BOXES[vertex.kind].name})"
            title += "" if vertex.rail is None else f", rail {vertex.rail}"
            title += "" if ratio is None else f", oversubscribed {ratio:.3g}:1"
            where = spot.left, spot.top, spot.width, spot.height
            yield box(*where, vertex.kind, name, title=title)
            if ratio is not None and spot.width >= 30:
                x, y = spot.left + 2, spot.bottom + 14
                style = f'style="fill:{MARK};font-weight:600"'
                yield f'<text x="{x:.1f}" y="{y:.1f}" {style}>{ratio:.3g}:1</text>'
        for spot, item in self._hosts:
            yield self._host(spot, item)
        for spot, label in self._more:
            yield (
                f'<rect x="{spot.left:.1f}" y="{spot.top:.1f}" width="{spot.width:.1f}" '
                f'height="{spot.height:.1f}" rx="4" fill="#ffffff" stroke="#9aa4b1" '
                f'stroke-dasharray="4 3"/>'
            )
            x, y = spot.centre, spot.top + spot.height / 2
            turned = f' transform="translate({x + 4:.1f} {y:.1f}) rotate(-90)"'
            placed = f' x="{x:.1f}" y="{y + 4:.1f}"' if spot.width > 7 * len(label) else turned
            yield f'<text class="m c"{placed}>{escape(label)}</text>'

    def _host(self, spot: _Spot, item: HostItem) -> str:
        count, first, last = len(item.hosts), item.hosts[0], item.hosts[-1]
        devices = f"{item.gpus} GPUs, {item.nics} NICs"
        brief = devices if spot.width >= 6.6 * len(devices) else f"{item.gpus} GPUs"
        rows = [first, brief] if count == 1 else [f"{count:,} hosts", first, f"to {last}"]
        if count > 1 and spot.width >= 150:
            rows[0] += f", {item.gpus} GPUs each"
        is_end = any(self._cluster.vertices[name].host in item.hosts for name in self._overlay.ends)
        edge = load_colour(None) if is_end else "#1c7d64"
        title = (
            f"{rows[0]}: {first} to {last}, each {devices}" if count > 1 else f"{first}: {devices}"
        )
        frame = (
            f'<rect x="{spot.left:.1f}" y="{spot.top:.1f}" width="{spot.width:.1f}" '
            f'height="{spot.height:.1f}" rx="5" fill="#f1faf6" stroke="{edge}" '
            f'stroke-width="{2.5 if is_end else 1.2:g}"/>'
        )
        parts = [f"<g><title>{escape(title)}</title>", frame]
        y = spot.top + spot.height / 2 + 4 - 9 * (len(rows) - 1)
        for number, words in enumerate(rows):
            look = "m b" if number == 0 else "m c"
            fits = fitted(words, spot.width - 6, 12.5 if number == 0 else 11)
            parts.append(text(spot.centre, y + 18 * number, fits, look))
        return "".join([*parts, "</g>"])


def _widest(links: Iterable[Link]) -> Link:
    return max(links, key=lambda link: link.bandwidth_bytes_per_second)


def _draw(lines: Sequence[_Line], overlay: Overlay) -> Iterator[str]:
    plain: dict[tuple[LinkKind, float], list[str]] = {}
    over = []
    titled = len(lines) <= _MAX_TITLED_LINES
    faint = DIMMED if overlay.capacities else (0.9 if titled else 0.35)
    for one in lines:
        width = stroke_width(one.widest.bandwidth_bytes_per_second)
        rate = readable_rate(one.widest.bandwidth_bytes_per_second)
        title = f"{one.widest.source} - {one.widest.target}: {rate}"
        title += ", assumed" if one.widest.bandwidth_assumed else ""
        found, share = overlay.of(one.links)
        if found:
            title += load_words(share)
            over.append(line(one.d, load_colour(share), max(width, 2.5) + 0.5, title=title))
        elif titled:
            colour = LINES[one.widest.kind].colour
            yield line(one.d, colour, width, opacity=faint, title=title)
        else:
            # So many between switches that thick ones would leave nothing to see between them.
            thin = max(width / 4, 0.7) if one.widest.kind is LinkKind.FABRIC else width
            plain.setdefault((one.widest.kind, thin), []).append(one.d)
    for (kind, width), paths in plain.items():
        yield line("".join(paths), LINES[kind].colour, width, opacity=faint)
    yield from over


def _notes(
    cluster: Cluster,
    view: FabricView,
    overlay: Overlay,
    torus: TorusPicture | None,
    y: float,
) -> tuple[list[str], float]:
    sentences: list[tuple[str, str]] = []
    for alike in uplinks_by_likeness(cluster)[:4]:
        if alike.oversubscription_ratio > 1.0005:
            first, count = alike.switches[0], len(alike.switches)
            who = first if count == 1 else f"{count:,} switches ({first}, ...)"
            below = readable_rate(alike.below_bytes_per_second)
            above = readable_rate(alike.above_bytes_per_second)
            words = f"{alike.oversubscription_ratio:.3g}:1 oversubscribed: {who}, {below} below"
            sentences.append((f"{words}, {above} above", MARK))
    of_torus = () if torus is None else torus.words
    sentences += [(f"{words[0].upper()}{words[1:]}.", "") for words in of_torus]
    if not view.rows:
        sentences.append(("No fabric joins the hosts.", ""))
    not_drawn = [*view.not_drawn]
    if torus is None and view.routers:
        not_drawn.append(
            f"{view.routers} routers of the accelerators' own network, and their links"
        )
    if not_drawn:
        sentences.append((f"Not drawn: {'; '.join(not_drawn)}.", ""))
    parts, y = overlay_notes(overlay, y, _WIDTH)
    for words, colour in sentences:
        styled = f' style="fill:{colour};font-weight:600"' if colour else ""
        shown = escape(words if len(words) < 170 else words[:169] + "…")
        parts.append(f'<text x="{MARGIN:g}" y="{y:.1f}"{styled}>{shown}</text>')
        y += 22
    words = (
        "Rates are nominal, in one direction, of one host or cable bundle; lines are as wide as the"
        " square root of them."
    )
    parts.append(text(MARGIN, y, words, "c"))
    return parts, y + 18
