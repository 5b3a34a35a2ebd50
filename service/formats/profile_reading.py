"""What a file that holds costs of layers is made into, and what the caller says beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.core.errors import LeftOut
from service.formats.documents.model import ModelDocument
from service.formats.documents.profile import ProfileDocument

__all__ = ["ProfileReading", "Stated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What the caller says that a file can't; None where nothing is said.

    `microbatch_size` counts samples; `backward_ratio` is how long a backward takes for its forward.
    """

    microbatch_size: int | None = None
    backward_ratio: float | None = None
    device: str | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReading:
    """The documents a file makes, and what a person should know before using them.

    A format that knows costs but not what is computed makes a profile alone. `facts` are what was
    read, in a few numbers.
    """

    profile: ProfileDocument
    model: ModelDocument | None
    facts: Mapping[str, Any]
    assumptions: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
