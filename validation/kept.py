"""Rows computed from files that are not in the repository, as they last were.

`kept.json` beside this module has them, so that the page is the same with and without the files.
`python -m validation --files FOLDER` computes them anew.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from validation.rows import Row

__all__ = ["KEPT", "kept_rows", "read_kept", "written"]

KEPT = Path(__file__).with_name("kept.json")

# Ours are kept with so many significant digits: more than the page shows, and fewer than differ
# from one machine to the next.
_DIGITS = 9


def read_kept(path: Path = KEPT) -> dict[str, tuple[Row, ...]]:
    """The rows of each section that needs files, by its name."""
    sections = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: tuple(Row(what, published, ours, exempt) for what, published, ours, exempt in rows)
        for name, rows in sections.items()
    }


def kept_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with as many digits as are kept."""
    return tuple(
        Row(row.what, row.published, float(f"{row.ours:.{_DIGITS}g}"), row.exempt) for row in rows
    )


def written(sections: Mapping[str, Sequence[Row]]) -> bytes:
    """The content of the file, one row a line."""
    parts = []
    for name, rows in sections.items():
        lines = [
            f"    {json.dumps([row.what, row.published, row.ours, row.exempt], ensure_ascii=False)}"
            for row in kept_rows(rows)
        ]
        parts.append(f"  {json.dumps(name)}: [\n" + ",\n".join(lines) + "\n  ]")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()
