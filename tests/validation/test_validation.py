"""Every published value is held to what its section says, as docs/validation.md shows it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from validation.kept import kept_rows, read_kept
from validation.page import rows_of
from validation.rows import Files, Row, Section
from validation.suite import SECTIONS

FILES = Path(__file__).resolve().parents[3] / "shared" / "data"
OF_FILES = [section for section in SECTIONS if section.rows_of_files is not None]


@cache
def rows(section: Section) -> Sequence[Row]:
    return rows_of(section)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.name)
def test_every_row_is_held_to_its_rule(section: Section) -> None:
    found = rows(section)
    assert any(not row.exempt for row in found)
    broken = [
        row for row in found if not row.exempt and not section.rule.accepts(row.published, row.ours)
    ]
    assert not broken


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.name)
def test_every_reason_to_exempt_rows_is_needed(section: Section) -> None:
    """Some row with it breaks the rule; where all would keep it, the reason has had its day."""
    of_reason: dict[str, list[Row]] = {}
    for row in rows(section):
        if row.exempt:
            of_reason.setdefault(row.exempt, []).append(row)
    for reason, exempt in of_reason.items():
        held = [section.rule.accepts(row.published, row.ours) for row in exempt]
        assert not all(held), reason


def test_sections_have_names_of_their_own_and_kept_rows_belong_to_one() -> None:
    names = [section.name for section in SECTIONS]
    assert len(set(names)) == len(names)
    assert list(read_kept()) == [section.name for section in OF_FILES]


@pytest.mark.skipif(not (FILES / "profiles").is_dir(), reason="no published files at hand")
@pytest.mark.parametrize("section", OF_FILES, ids=lambda one: one.name)
def test_kept_rows_are_what_the_files_give(section: Section) -> None:
    """Otherwise `python -m validation --files FOLDER` keeps them anew."""
    assert section.rows_of_files is not None
    found = kept_rows(section.rows_of_files(Files(FILES)))
    kept = read_kept()[section.name]
    assert [(row.what, row.published, row.exempt) for row in found] == [
        (row.what, row.published, row.exempt) for row in kept
    ]
    assert [row.ours for row in found] == pytest.approx([row.ours for row in kept], rel=1e-7)
