"""What the parts of a timeline look like in a picture: colours, shades, names in the legend."""

from dataclasses import dataclass

from service.core.schedules.program import OpKind
from service.formats.timeline_shapes import CONTENTION, DEPENDENCY, OTHER, SENDING, TRANSFER

__all__ = ["HATCH", "LOOKS", "Look", "ink_on", "shade"]

# The row before a rank's first operation and after its last one.
HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#f7f8fa"/>'
    '<path d="M0 0V6" stroke="#d5dbe3" stroke-width="2"/></pattern></defs>'
)

_DARK_INK, _LIGHT_INK = "#1c1a16", "#ffffff"
# How far the last of several chunks is from the first on the way to white.
_LIGHTEST = 0.55


@dataclass(frozen=True, slots=True)
class Look:
    """How one kind of operation or of idle time is drawn; `height` is a share of the row's."""

    name: str
    fill: str
    height: float = 1.0


LOOKS = {
    OpKind.FORWARD: Look("forward", "#1f5f9e"),
    OpKind.BACKWARD: Look("backward", "#f3b23c"),
    OpKind.BACKWARD_INPUT: Look("backward (inputs)", "#f3b23c"),
    OpKind.BACKWARD_WEIGHT: Look("backward (weights)", "#a65b2b"),
    OpKind.FORWARD_BACKWARD: Look("forward and backward", "#7b4a9c"),
    OpKind.RECOMPUTE: Look("recompute", "#2e9e83", 0.62),
    OTHER: Look("other microbatches", "#c5ccd6"),
    SENDING: Look("sending", "#5f7384", 0.62),
    DEPENDENCY: Look("waits for another rank", "#f5d0cd", 0.62),
    CONTENTION: Look("waits for a busy link", "#cf3f4f", 0.62),
    TRANSFER: Look("waits for a transfer", "#cfb6ea", 0.62),
}


def shade(kind: int, part: int, parts: int) -> str:
    """The colour of a kind for one of the chunks (or directions) of a rank: later ones lighter."""
    fill = LOOKS[kind].fill
    if part == 0 or parts < 2 or kind < 0:
        return fill
    way = _LIGHTEST * part / (parts - 1)
    mixed = (round(value + (255 - value) * way) for value in _values(fill))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ink_on(fill: str) -> str:
    """Dark or light, whichever stands out."""
    red, green, blue = _values(fill)
    return _DARK_INK if 299 * red + 587 * green + 114 * blue > 140_000 else _LIGHT_INK


def _values(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
