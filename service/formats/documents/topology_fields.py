"""What the parts of a topology document are made of: names, rates, latencies, rails."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = [
    "MAX_ASSUMPTIONS",
    "MAX_SENTENCE",
    "BytesPerSecond",
    "DeviceName",
    "DtypeName",
    "LatencySeconds",
    "LinkEnd",
    "Name",
    "Rail",
    "Sentence",
    "Text",
    "TopologyPart",
]

# `$` alone would let a final newline through in Python.
_NAME = r"^[a-z][a-z0-9.-]{0,62}$(?!\n)"
_DEVICE = r"^[a-z][a-z0-9_.-]{0,62}$(?!\n)"
_END = r"^[a-z][a-z0-9.-]{0,66}(/[a-z][a-z0-9_.-]{0,62})?$(?!\n)"
_TEXT = r"^[^\x00-\x1f\x7f]{1,200}$(?!\n)"

Name = Annotated[str, Meta(pattern=_NAME, max_length=63)]
DeviceName = Annotated[
    str,
    Meta(
        pattern=_DEVICE,
        max_length=63,
        description="Name within the host; elsewhere the device is host/name.",
        examples=["gpu0", "nic3"],
    ),
]
LinkEnd = Annotated[
    str,
    Meta(
        pattern=_END,
        max_length=131,
        description="A device as host/device, or a switch by name; in the links of a host, a"
        " device by its name within the host.",
        examples=["host0/nic3", "leaf0"],
    ),
]
Text = Annotated[str, Meta(pattern=_TEXT, max_length=200)]
# An import may assume much; what does not fit is told by its own answer alone.
MAX_ASSUMPTIONS = 64
MAX_SENTENCE = 500
Sentence = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,500}$(?!\n)", max_length=MAX_SENTENCE)]
BytesPerSecond = Annotated[
    float,
    Meta(ge=1, le=1e15, description="Bytes per second in one direction.", examples=[5e10]),
]
LatencySeconds = Annotated[float, Meta(ge=0, le=1, description="Seconds.", examples=[5e-7])]
Rail = Annotated[int, Meta(ge=0, le=1023, description="Number of the rail.", examples=[0])]
DtypeName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,15}$(?!\n)", max_length=16)]


class TopologyPart(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What all parts of a topology document share; `kw_only` alone is not inherited."""
