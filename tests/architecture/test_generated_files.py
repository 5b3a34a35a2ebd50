"""The generator finds what is stale, missing or left over. That nothing is, scripts/check says."""

from pathlib import Path

import pytest

from tools.generate import Source, stale_files


def source(**files: str) -> Source:
    contents = {Path("made") / name: text.encode() for name, text in files.items()}
    return Source(lambda: contents, folders=("made",))


def write(root: Path, **files: str) -> None:
    (root / "made").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "made" / name).write_text(text, encoding="utf-8")


def test_nothing_is_stale_when_all_is_as_made(tmp_path: Path) -> None:
    write(tmp_path, a="1", b="2")
    assert stale_files(tmp_path, (source(a="1", b="2"),)) == {}


def test_changed_missing_and_left_over_files_are_found(tmp_path: Path) -> None:
    write(tmp_path, a="1", b="old", left="over")
    assert stale_files(tmp_path, (source(a="1", b="2", c="3"),)) == {
        Path("made/b"): b"2",
        Path("made/c"): b"3",
        Path("made/left"): None,
    }


def test_files_beside_the_folders_of_a_source_are_not_its_own(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    (tmp_path / "by-hand").write_text("kept", encoding="utf-8")
    page = Source(lambda: {Path("page.md"): b"text"})
    assert stale_files(tmp_path, (source(a="1"), page)) == {Path("page.md"): b"text"}


def test_two_sources_of_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two sources make"):
        stale_files(tmp_path, (source(a="1"), source(a="2")))
