"""docs/validation.md: every section as a table."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from tools.tables import table
from validation.kept import read_kept
from validation.rows import Row, Section
from validation.suite import SECTIONS

__all__ = ["generated_files", "page", "rows_of"]

PAGE = Path("docs/validation.md")

# Smaller errors are of the floats that hold the numbers.
_NO_ERROR = 5e-10

_OPENING = """
# Validation

Published values beside ours. Ours are computed from the inputs that each section names, by the
functions that answer requests unless the section says otherwise; none is written down by hand.
`python tools/generate.py` makes the page, and a test holds every row to what its section says. Rows
with a number in brackets are exempt, for the reason of that number below their table. An error is
(ours - published) / published.

Sections marked † need files that others published and that are no part of this repository: their
rows stand in `validation/kept.json` as they last were computed. `python -m validation --files
FOLDER` computes them anew, and where the files are at hand a test holds what was kept to them.
"""


def generated_files() -> dict[Path, bytes]:
    """The page, by its path relative to the root."""
    return {PAGE: page([(section, rows_of(section)) for section in SECTIONS]).encode()}


def rows_of(section: Section) -> Sequence[Row]:
    """The rows of a section: computed, or kept where they need files."""
    return read_kept()[section.name] if section.rows is None else section.rows()


def page(sections: Sequence[tuple[Section, Sequence[Row]]]) -> str:
    """The whole page."""
    parts = [_OPENING, _overview(sections), *(_section(*one) for one in sections)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _overview(sections: Sequence[tuple[Section, Sequence[Row]]]) -> str:
    lines = []
    for section, rows in sections:
        held = [row for row in rows if not row.exempt]
        mean = ""
        if section.is_bound:
            shares = [float(row.published) / row.ours for row in held]
            worst = f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % of the bound"
        else:
            worst = _error(max(held, key=lambda row: abs(row.error)))
            mean = _percent(sum(abs(row.error) for row in held) / len(held))
        link = section.title.lower().replace(" ", "-")
        anchor = "".join(letter for letter in link if letter.isalnum() or letter in "-_")
        title = f"[{section.title}](#{anchor}){_mark(section)}"
        exempt = len(rows) - len(held)
        lines.append((title, str(len(held)), section.rule.text, worst, mean, str(exempt or "")))
    heading = ("section", "rows held", "held to", "largest error", "mean size", "exempt")
    return table(heading, lines)


def _section(section: Section, rows: Sequence[Row]) -> str:
    reasons = list(dict.fromkeys(row.exempt for row in rows if row.exempt))
    lines = []
    for row in rows:
        note = f" [{reasons.index(row.exempt) + 1}]" if row.exempt else ""
        lines.append((row.what + note, row.published, _ours(row), _shown(section, row)))
    heading = (
        (section.what, f"measured, {section.unit}", f"bound, {section.unit}", "measured / bound")
        if section.is_bound
        else (section.what, f"published, {section.unit}", f"ours, {section.unit}", "error")
    )
    parts = [
        f"## {section.title}",
        _wrapped(f"{_mark(section)} {section.text}"),
        _wrapped(f"Source: {section.source}"),
        _wrapped(f"Held to {section.rule.text}: {section.rule.reason}"),
        table(heading, lines),
    ]
    if reasons:
        listed = [_wrapped(f"{n}. {why}", "   ") for n, why in enumerate(reasons, 1)]
        parts.append("Not held to it:\n\n" + "\n".join(listed))
    return "\n\n".join(parts)


def _wrapped(text: str, indent: str = "") -> str:
    return fill(" ".join(text.split()), 100, subsequent_indent=indent, break_on_hyphens=False)


def _ours(row: Row) -> str:
    """Six digits, or all of a count."""
    is_count = float(row.ours).is_integer() and "." not in row.published
    return f"{row.ours:.0f}" if is_count else f"{row.ours:.6g}"


def _mark(section: Section) -> str:
    return "" if section.rows_of_files is None else "†"


def _shown(section: Section, row: Row) -> str:
    return _reached(row) if section.is_bound else _error(row)


def _reached(row: Row) -> str:
    return f"{100 * float(row.published) / row.ours:.1f} %"


def _error(row: Row) -> str:
    return "0" if abs(row.error) < _NO_ERROR else f"{100 * row.error:+.2g} %"


def _percent(share: float) -> str:
    return "0" if share < _NO_ERROR else f"{100 * share:.2g} %"
