"""What the parts of a cluster look like: boxes by what they are, lines by their rate."""

from dataclasses import dataclass
from html import escape
from math import sqrt

from service.core.topology.cluster import Link, LinkKind, VertexKind
from service.formats.svg_parts import fitted

__all__ = [
    "BOXES",
    "CASING",
    "DIMMED",
    "LINES",
    "MARK",
    "BoxLook",
    "LineLook",
    "badge",
    "box",
    "line",
    "link_name",
    "load_colour",
    "load_words",
    "readable_rate",
    "stroke_width",
]

# What several GPUs leave through, and text that stands for it.
MARK = "#c77700"
# Lines that an overlay puts into the background.
DIMMED = 0.28
# Around lines that pass in front of a box.
CASING = "#ffffff"
_PATH = "#d0273e"
_MOST_OF_A_SOURCE = 24
_LOADS = ("#f4b6a6", "#ef8d76", "#e4604f", "#d0273e", "#8f0f2b")


@dataclass(frozen=True, slots=True)
class BoxLook:
    """How a kind of vertex is drawn."""

    name: str
    fill: str
    edge: str


@dataclass(frozen=True, slots=True)
class LineLook:
    """How a kind of link is drawn."""

    name: str
    colour: str


BOXES = {
    VertexKind.GPU: BoxLook("GPU", "#def3ea", "#1c7d64"),
    VertexKind.NIC: BoxLook("NIC", "#dfebf9", "#1f5f9e"),
    VertexKind.NVSWITCH: BoxLook("NVSwitch", "#c3e8d9", "#1c7d64"),
    VertexKind.PCIE_SWITCH: BoxLook("PCIe switch", "#eceff3", "#5f7384"),
    VertexKind.HOST_BRIDGE: BoxLook("host bridge", "#fbf3ea", "#b98a5e"),
    VertexKind.CPU: BoxLook("CPU", "#f8e9db", "#a65b2b"),
    VertexKind.LEAF: BoxLook("leaf", "#ece4f6", "#7b4a9c"),
    VertexKind.SPINE: BoxLook("spine", "#dccdf0", "#7b4a9c"),
    VertexKind.CORE: BoxLook("core", "#cbb7e8", "#7b4a9c"),
    VertexKind.ROUTER: BoxLook("router", "#c3e8d9", "#1c7d64"),
    VertexKind.SWITCH: BoxLook("switch", "#ece4f6", "#7b4a9c"),
}
LINES = {
    LinkKind.NVLINK: LineLook("NVLink", "#2e9e83"),
    LinkKind.PCIE: LineLook("PCIe", "#7f93a5"),
    LinkKind.HOST_BRIDGE: LineLook("host bridge", "#b98a5e"),
    LinkKind.ON_CHIP: LineLook("on chip", "#c98d5c"),
    LinkKind.SOCKET: LineLook("socket", "#a65b2b"),
    LinkKind.NETWORK: LineLook("network", "#4a86c5"),
    LinkKind.FABRIC: LineLook("fabric", "#a98bc4"),
    LinkKind.OTHER: LineLook("other", "#9aa4b1"),
}


def link_name(link: Link) -> str:
    """What a link is called: by its kind, or by what it is made of where that says more."""
    source = link.bandwidth_source or ""
    if link.kind is LinkKind.NVLINK and source.startswith("xGMI"):
        return "xGMI"
    if link.kind is LinkKind.OTHER and 0 < len(source) <= _MOST_OF_A_SOURCE:
        return source
    return LINES[link.kind].name


def stroke_width(bytes_per_second: float) -> float:
    """Pixels for a rate: as its square root, so that 12.5 and 900 GB/s can both be seen."""
    return min(max(0.4 * sqrt(bytes_per_second / 1e9), 1.0), 13.0)


def readable_rate(bytes_per_second: float) -> str:
    """A rate in the unit of its size, three digits."""
    for size, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.3g} {unit}"
    return f"{bytes_per_second:.3g} B/s"


def load_colour(share: float | None) -> str:
    """The colour of a path (None), or of a load from 0 to 1 of the most loaded link's."""
    if share is None:
        return _PATH
    return _LOADS[min(int(share * len(_LOADS)), len(_LOADS) - 1)]


def load_words(share: float | None) -> str:
    """A load as the end of a title; nothing of a path."""
    return "" if share is None else f", load {share:.0%} of the greatest"


def line(
    d: str, colour: str, width: float, *, opacity: float = 1.0, title: str = "", dash: str = ""
) -> str:
    """A line along a path; the title is what is shown for it and read aloud."""
    faint = "" if opacity == 1.0 else f' stroke-opacity="{opacity:g}"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    start = f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="{width:.1f}"{faint}{dashed}'
    return f"{start}><title>{escape(title)}</title></path>" if title else f"{start}/>"


def box(
    left: float,
    top: float,
    width: float,
    height: float,
    kind: VertexKind,
    label: str,
    *,
    title: str,
    edge: str | None = None,
    at_left: bool = False,
) -> str:
    """A vertex; the label is turned where it is wider than the box and the box tall enough.

    `at_left` puts it at the left end, out of the way of what passes in front.
    """
    look = BOXES[kind]
    edge, thick = (edge, 2.5) if edge else (look.edge, 1.2)
    shape = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" '
        f'fill="{look.fill}" stroke="{edge}" stroke-width="{thick:g}"/>'
    )
    x, y = left + width / 2, top + height / 2
    across = fitted(label, width - 4)
    if across == label or height < 48:
        x, look_of_words = (left + 8, "") if at_left else (x, ' class="m"')
        words = f'<text x="{x:.1f}" y="{y + 4:.1f}"{look_of_words}>{escape(across)}</text>'
    else:
        upright = fitted(label, height - 4, 11) if width >= 11 else ""
        words = (
            f'<text transform="translate({x + 4:.1f} {y:.1f}) rotate(-90)" class="m c">'
            f"{escape(upright)}</text>"
        )
    return f"<g><title>{escape(title)}</title>{shape}{words if across or height >= 48 else ''}</g>"


def badge(x: float, y: float, number: int, title: str) -> str:
    """A mark with a number on a line."""
    label = str(number) if number < 1000 else "…"
    half = 4.0 + 3.6 * len(label)
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect x="{x - half:.1f}" y="{y - 8:.1f}" width="{2 * half:.1f}" height="16" rx="8" '
        f'fill="{MARK}"/><text x="{x:.1f}" y="{y + 4:.1f}" class="m" '
        f'style="fill:#ffffff;font-size:11px;font-weight:600">{label}</text></g>'
    )
