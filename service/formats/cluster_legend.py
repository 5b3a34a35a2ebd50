"""What stands below the picture of a cluster: kinds of links with their rates, and the overlay."""

from collections.abc import Iterable

from service.core.topology.cluster import Link, LinkKind
from service.formats.cluster_looks import (
    LINES,
    line,
    link_name,
    load_colour,
    readable_rate,
    stroke_width,
)
from service.formats.cluster_overlay import Overlay
from service.formats.svg_parts import MARGIN, rectangle, text

__all__ = ["legend", "overlay_notes"]

_MOST_ENTRIES = 16


def legend(links: Iterable[Link], y: float, width: float) -> tuple[list[str], float]:
    """Every kind of link with its rates, each as wide as it is drawn, and where the last row is."""
    rates: dict[tuple[LinkKind, str, float], bool] = {}
    for link in links:
        key = link.kind, link_name(link), link.bandwidth_bytes_per_second
        rates[key] = rates.get(key, False) or link.bandwidth_assumed
    order = list(LINES)
    entries = sorted(rates.items(), key=lambda item: (order.index(item[0][0]), -item[0][2]))
    parts, x = [], MARGIN
    for (kind, name, rate), assumed in entries[:_MOST_ENTRIES]:
        words = f"{name} {readable_rate(rate)}{' (assumed)' if assumed else ''}"
        wide = 34 + 6.6 * len(words) + 18
        if x + wide > width - MARGIN and x > MARGIN:
            x, y = MARGIN, y + 22
        parts.append(line(f"M{x:.1f} {y - 4:.1f}h26", LINES[kind].colour, stroke_width(rate)))
        parts.append(text(x + 34, y, words))
        x += wide
    if len(entries) > _MOST_ENTRIES:
        y += 22
        parts.append(text(MARGIN, y, f"and {len(entries) - _MOST_ENTRIES} more rates", "c"))
    return parts, y


def overlay_notes(overlay: Overlay, y: float, width: float) -> tuple[list[str], float]:
    """What is laid over the picture, and where the next line of words goes."""
    if not overlay.note:
        return [], y
    loads = [share for share in overlay.capacities.values() if share is not None]
    parts = []
    if loads:
        parts = [
            rectangle(MARGIN + 6 * step, y - 9, 6, 10, load_colour(step / 5 + 0.1))
            for step in range(5)
        ]
    else:
        parts.append(line(f"M{MARGIN:.1f} {y - 4:.1f}h26", load_colour(None), 4))
    most = int((width - 2 * MARGIN - 38) / 6.3)
    words = overlay.note if len(overlay.note) <= most else overlay.note[: most - 1] + "…"
    parts.append(text(MARGIN + 38, y, words))
    return parts, y + 24
