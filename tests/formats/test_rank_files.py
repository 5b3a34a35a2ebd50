"""Rank files and machine files: what each line means, and what is refused where."""

import contextlib
from random import Random

import pytest

from service.core.errors import InvalidInput
from service.formats import rank_files
from service.formats.rank_files import read_rank_file


def refusals(text: str) -> list[tuple[object, str]]:
    with pytest.raises(InvalidInput) as refused:
        read_rank_file(text)
    return [(fault.path, fault.code.value) for fault in refused.value.faults]


def test_a_rankfile_in_any_order() -> None:
    text = "# two hosts\nrank 1=host1 slot=0:1-2\n\nrank 0 = host0 slot=0,1 # first\nrank 2=host1\n"
    assert read_rank_file(text) == ("host0", "host1", "host1")


@pytest.mark.parametrize(
    "text",
    [
        "a:2\nb:1\n",
        "a slots=2\nb slots=1\n",
        "a slots = 2 max_slots=9\nb\n",
        "a max_slots=4 slots=2\nb max-slots=4\n",
        "a\na\nb",
        "a:2\r\nb:1\r\n",
    ],
)
def test_machine_files(text: str) -> None:
    """A line without a number is one rank; a maximum is none."""
    assert read_rank_file(text) == ("a", "a", "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [((), "missing_field")]),
        ("# nothing\n \n", [((), "missing_field")]),
        ("rank 0=a slot=0\nrank 0=b slot=1", [(("line", 2), "duplicate_name")]),
        ("rank 0=a slot=0\nrank 2=b slot=1", [((), "inconsistent")]),
        (
            "rank 0=a slot=0\nrank b\n+n0",
            [(("line", 2), "unreadable"), (("line", 3), "unreadable")],
        ),
        ("rank 0=+n0 slot=0", [(("line", 1), "unreadable")]),
        ("a:2 slots=2", [(("line", 1), "unreadable")]),
        ("a:0", [((), "missing_field")]),
        ("a:2\nb;c", [(("line", 2), "unreadable")]),
        ("a:65537", [((), "out_of_range")]),
    ],
)
def test_what_is_refused(text: str, expected: list[tuple[object, str]]) -> None:
    assert refusals(text) == expected


def test_faults_end_after_some() -> None:
    assert len(refusals("a:1\n" + "?\n" * 500)) == rank_files.MAX_FAULTS


def test_each_line_matters() -> None:
    lines = ["rank 0=a slot=0", "rank 1=b slot=0", "rank 2=a slot=1"]
    whole = read_rank_file("\n".join(lines))
    for number in range(3):
        rest = "\n".join(lines[:number] + lines[number + 1 :])
        with contextlib.suppress(InvalidInput):
            assert read_rank_file(rest) != whole


def test_damage_is_read_or_refused(seed: int) -> None:
    random = Random(seed)
    text = "rank 0=host0 slot=0:1\nrank 1=host1 slot=2\n# end\n"
    for _ in range(500):
        letters = list(text)
        for _ in range(random.randint(1, 5)):
            letters[random.randrange(len(letters))] = chr(random.randrange(1, 256))
        with contextlib.suppress(InvalidInput):
            assert read_rank_file("".join(letters))
