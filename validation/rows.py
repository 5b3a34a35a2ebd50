"""What a published value, ours beside it, and the rule that holds the two together are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path

__all__ = [
    "Files",
    "Row",
    "Rule",
    "Section",
    "at_least",
    "at_most",
    "decimals_of",
    "printed",
    "within",
]

# Of exact values held as floats on both sides.
_EXACT = 1e-12


@dataclass(frozen=True, slots=True)
class Rule:
    """How far ours may be from what was published, why, and the test of it.

    `accepts` takes the published text and our number.
    """

    text: str
    reason: str
    accepts: Callable[[str, float], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """One published value as it was printed, and ours in the same unit.

    A row with `exempt`, the reason why, is not held to the rule of its section.
    """

    what: str
    published: str
    ours: float
    exempt: str = ""

    @property
    def error(self) -> float:
        """(ours - published) / published."""
        return self.ours / float(self.published) - 1


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of files that other people published and that are no part of this repository."""

    folder: Path

    def read(self, name: str) -> bytes:
        """The content of one, by its path in the folder; raises `FileNotFoundError`."""
        return (self.folder / name).read_bytes()


@dataclass(frozen=True, slots=True)
class Section:
    """Rows of one kind, from one source, under one rule.

    `name` stands in the file of kept values. `source` says where the published values are from,
    `text` what goes in, how ours is computed, and what it does not represent. `rows` computes them;
    one that needs `files` is called with them, and its rows are kept in between. With `is_bound`
    ours is a bound on what was measured: the page shows how much of it was reached.
    """

    name: str
    title: str
    source: str
    text: str
    what: str
    unit: str
    rule: Rule
    rows: Callable[[], Sequence[Row]] | None = None
    rows_of_files: Callable[[Files], Sequence[Row]] | None = None
    is_bound: bool = False

    def __post_init__(self) -> None:
        """A section has one way to its rows."""
        if (self.rows is None) == (self.rows_of_files is None):
            raise ValueError(f"{self.name} has one of rows and rows_of_files")


def decimals_of(text: str) -> int:
    """How many digits stand behind the point of a printed number."""
    return len(text.partition(".")[2])


def printed(reason: str) -> Rule:
    """Ours, rounded to as many digits as were printed, is what was printed."""

    def accepts(published: str, ours: float) -> bool:
        decimals = decimals_of(published)
        return f"{ours:.{decimals}f}" == f"{float(published):.{decimals}f}"

    return Rule("all printed digits", reason, accepts)


def at_most(reason: str) -> Rule:
    """Ours, rounded as printed, is no more than what was printed."""

    def accepts(published: str, ours: float) -> bool:
        return round(ours, decimals_of(published)) <= float(published)

    return Rule("no more than published", reason, accepts)


def at_least(reason: str) -> Rule:
    """Ours is no less than what was printed, as a bound on it must be."""

    def accepts(published: str, ours: float) -> bool:
        return ours >= float(published) or isclose(ours, float(published), rel_tol=_EXACT)

    return Rule("no less than measured", reason, accepts)


def within(share: float, reason: str) -> Rule:
    """Ours differs by at most this share of what was printed."""

    def accepts(published: str, ours: float) -> bool:
        return abs(ours / float(published) - 1) <= share

    return Rule(f"within {100 * share:g} %", reason, accepts)
