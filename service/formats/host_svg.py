"""One host as a picture: its devices, the links between them by kind and rate, what is shared.

A path or a load can be laid over it. Both directions of a link are one line, of the greater rate.
"""

from collections import Counter
from collections.abc import Iterable

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import Cluster, Link, VertexKind
from service.core.topology.index import index_of
from service.core.topology.nic_sharing import HostSharing
from service.formats.cluster_legend import legend, overlay_notes
from service.formats.cluster_looks import (
    BOXES,
    CASING,
    DIMMED,
    LINES,
    badge,
    box,
    line,
    load_colour,
    load_words,
    readable_rate,
    stroke_width,
)
from service.formats.cluster_overlay import NOTHING, Overlay
from service.formats.host_layout import HostLayout, Place, Wire, lay_out_host
from service.formats.svg_parts import MARGIN, fitted, framed, text

__all__ = ["MAX_DRAWN_DEVICES", "host_svg"]

# In one host: with their links some hundreds of kilobytes.
MAX_DRAWN_DEVICES = 512
_MAX_DRAWN_LINKS = 4_096


def host_svg(
    cluster: Cluster,
    host: str,
    *,
    title: str,
    sharing: HostSharing | None = None,
    overlay: Overlay = NOTHING,
) -> str:
    """The picture of `host`; links that several GPUs leave through are marked from `sharing`.

    Raises `InvalidInput` (path `host`) for a host with more than `MAX_DRAWN_DEVICES` devices, or
    with too many links.
    """
    members, leaving = index_of(cluster).members[host], index_of(cluster).leaving
    links = sum(len(leaving[vertex.name]) for vertex in members)
    if len(members) > MAX_DRAWN_DEVICES or links > _MAX_DRAWN_LINKS:
        detail = (
            f"a picture has at most {MAX_DRAWN_DEVICES} devices and {_MAX_DRAWN_LINKS} links; this"
            f" host has {len(members)} and {links}"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("host",), detail)])
    layout = lay_out_host(cluster, host)
    widest = [_widest(wire.links) for wire in layout.wires]
    key, legend_bottom = legend(widest, layout.bottom + 40, layout.width)
    notes, height = _notes(layout, legend_bottom, sharing, overlay)
    facts = _facts(cluster, host)
    parts = [
        *_wires((wire for wire in layout.wires if not wire.in_front), overlay),
        *(_box(place, host, overlay) for place in layout.places),
        *_wires((wire for wire in layout.wires if wire.in_front), overlay),
        *_badges(layout, sharing),
        *key,
        *notes,
    ]
    return framed(
        parts,
        size=(layout.width, height),
        name="host",
        heading=f"{title} · {host}",
        facts=facts,
        description=_description(host, facts, overlay),
    )


def _facts(cluster: Cluster, host: str) -> str:
    members = index_of(cluster).members[host]
    counts = Counter(vertex.kind for vertex in members)
    products = dict.fromkeys(v.product for v in members if v.kind is VertexKind.GPU and v.product)
    facts = [
        f"{number} {BOXES[kind].name}{'es' if kind.value.endswith('switch') else 's'}"
        if number > 1
        else f"1 {BOXES[kind].name}"
        for kind, number in counts.items()
    ]
    return " · ".join([*facts, *products])


def _description(host: str, facts: str, overlay: Overlay) -> str:
    words = (
        f"Host {host}: {facts}. CPUs at the top, then PCIe switches, devices, NVLink, and the"
        " switches that NICs are plugged into. Lines are links, the wider the faster."
    )
    return f"{words} Laid over it: {overlay.note}." if overlay.note else words


def _box(place: Place, host: str, overlay: Overlay) -> str:
    name = place.vertex.name
    label = name.removeprefix(f"{host}/")
    title = f"{name} ({BOXES[place.vertex.kind].name})"
    if place.vertex.rail is not None:
        title += f", rail {place.vertex.rail}"
    edge = load_colour(None) if name in overlay.ends else None
    return box(
        place.left,
        place.top,
        place.width,
        place.height,
        place.vertex.kind,
        label,
        title=title,
        edge=edge,
        at_left=place.vertex.kind is VertexKind.NVSWITCH,
    )


def _widest(links: Iterable[Link]) -> Link:
    return max(links, key=lambda link: link.bandwidth_bytes_per_second)


def _wires(wires: Iterable[Wire], overlay: Overlay) -> Iterable[str]:
    over = []
    for wire in wires:
        widest = _widest(wire.links)
        look, width = LINES[widest.kind], stroke_width(widest.bandwidth_bytes_per_second)
        rate = readable_rate(widest.bandwidth_bytes_per_second)
        lanes = f" ({widest.lanes} lanes)" if widest.lanes > 1 else ""
        assumed = ", assumed" if widest.bandwidth_assumed else ""
        title = f"{look.name} {widest.source} - {widest.target}: {rate}{lanes}{assumed}"
        found, share = overlay.of(wire.links)
        if wire.in_front:
            yield line(wire.d, CASING, width + 4)
        dash = "5 3" if wire.is_odd else ""
        if found:
            title += load_words(share)
            over.append(line(wire.d, load_colour(share), max(width, 2.5) + 1, title=title))
            continue
        opacity = DIMMED if overlay.capacities else 1.0
        yield line(wire.d, look.colour, width, opacity=opacity, title=title, dash=dash)
    yield from over


def _badges(layout: HostLayout, sharing: HostSharing | None) -> Iterable[str]:
    if sharing is None:
        return
    common = {one.link.resource: one for one in sharing.common}
    for wire in layout.wires:
        found = [common[link.resource] for link in wire.links if link.resource in common]
        if found:
            one = found[0]
            names = ", ".join(one.gpus[:8]) + (", ..." if len(one.gpus) > 8 else "")
            each = readable_rate(one.equal_share_bytes_per_second)
            title = f"{len(one.gpus)} GPUs leave through this ({names}): {each} each"
            yield badge(*wire.middle, len(one.gpus), title)


def _notes(
    layout: HostLayout, bottom: float, sharing: HostSharing | None, overlay: Overlay
) -> tuple[list[str], float]:
    y = bottom + 26
    parts = []
    wide = layout.width - 2 * MARGIN
    if sharing is not None and sharing.common:
        parts.append(badge(MARGIN + 13, y - 4, len(sharing.common[0].gpus), "GPUs"))
        words = "GPUs that leave the host through this link, each by its nearest NIC"
        parts.append(text(MARGIN + 34, y, fitted(words, wide - 34)))
        y += 24
    more, y = overlay_notes(overlay, y, layout.width)
    parts += more
    words = "Rates are nominal, in one direction; lines are as wide as the square root of them."
    parts.append(text(MARGIN, y, words, "c"))
    return parts, y + 18
