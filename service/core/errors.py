"""Faults of an input, the errors that carry them, and what is said of an input that has none.

    CoreError
    └── InvalidInput          a well-formed input that can't be computed; carries every fault
        ├── UnlikePlans         plans that can't be compared: their contracts differ
        └── WorkBudgetExceeded  a valid input whose work is beyond the stated budget

Core code collects `Fault`s and raises once, so that a caller sees all of them together.
`some_of` names a few of many in a sentence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CoreError",
    "Fault",
    "FaultCode",
    "InvalidInput",
    "LeftOut",
    "Path",
    "Statement",
    "UnlikePlans",
    "WorkBudgetExceeded",
    "some_of",
]

Path = tuple[str | int, ...]


class FaultCode(StrEnum):
    """The closed list of what can be wrong with a well-formed input (shown in the OpenAPI file)."""

    DUPLICATE_NAME = "duplicate_name"
    EMPTY_STAGE = "empty_stage"
    EXCLUSIVE_FIELDS = "exclusive_fields"
    ILLEGAL_SCHEDULE = "illegal_schedule"
    INCONSISTENT = "inconsistent"
    INDIVISIBLE = "indivisible"
    MISSING_FIELD = "missing_field"
    MISSING_PROFILE_POINT = "missing_profile_point"
    NOT_SUPPORTED = "not_supported"
    OUT_OF_RANGE = "out_of_range"
    TOO_FEW_DEVICES = "too_few_devices"
    TOO_FEW_LAYERS = "too_few_layers"
    TOO_SMALL_TO_REPRESENT = "too_small_to_represent"
    UNKNOWN_NAME = "unknown_name"
    UNKNOWN_REFERENCE = "unknown_reference"
    UNLIKE = "unlike"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"
    WORK_BUDGET = "work_budget"
    WRONG_LENGTH = "wrong_length"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: `path` points to it, `detail` says what would be right."""

    code: FaultCode
    path: Path
    detail: str

    def under(self, *prefix: str | int) -> "Fault":
        """The same fault seen from a document that holds this one at `prefix`."""
        return Fault(self.code, (*prefix, *self.path), self.detail)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something in a file that was read over, and why. Lines count from 1."""

    line: int
    detail: str


@dataclass(frozen=True, slots=True)
class Statement:
    """Something an answer says about itself: a stable code and a sentence."""

    code: str
    detail: str


class CoreError(Exception):
    """Whatever the core refuses."""


class InvalidInput(CoreError):
    """A well-formed input that can't be computed, with every fault found."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.detail for fault in self.faults))


class UnlikePlans(InvalidInput):
    """Plans that do not do the same work, with a fault for each term of their contracts."""


class WorkBudgetExceeded(InvalidInput):
    """A valid input whose work, known before it is done, is beyond the budget."""


def some_of(names: Sequence[object], most: int = 3) -> str:
    """As many of the names as a sentence bears: `a, b, c and 4 more`."""
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
