"""What an importer makes of a file that describes a model, and what the caller says beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.core.errors import LeftOut
from service.core.models.dtypes import DType
from service.formats.documents.model import ModelDocument
from service.formats.documents.plan import PlanDocument

__all__ = ["ModelReading", "StatedModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedModel:
    """What the caller says that a file can't, or says instead of it; None where nothing is said.

    `dtype` is the type of the weights in training. `vocabulary_size` counts tokens.
    """

    dtype: DType | None = None
    vocabulary_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """The documents a file makes, and what a person should know before using them.

    The `costs` of the plan are empty: the file does not say what it is priced with.
    """

    model: ModelDocument
    plan: PlanDocument | None
    facts: Mapping[str, Any]
    assumptions: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
