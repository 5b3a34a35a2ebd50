"""Galvatron's computation profiles: blocks by the difference of two layer counts."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.formats.documents.profile import to_core
from service.formats.galvatron import looks_like_galvatron, read_galvatron
from service.formats.profile_reading import ProfileReading, Stated
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

COUNTS = (
    Path(__file__).parent / "fixtures" / "profiles" / "two-counts.galvatron.json"
).read_bytes()
VALUES = json.loads(COUNTS)


def read(content: bytes = COUNTS, ratio: float | None = None) -> ProfileReading:
    return read_galvatron(content, Stated(backward_ratio=ratio, device="A100"))


def changed(key: str, value: Any) -> bytes:
    """The fixture with another value, or one more."""
    return json.dumps({**VALUES, key: value}, indent=1).encode()


def test_a_block_is_the_difference_of_two_counts_by_hand() -> None:
    """At 1 sample: (16 - 10) / 2 = 3 ms a block, 10 - 2 x 3 = 4 ms the rest; at 4 samples
    (52 - 30) / 2 = 11 ms and 30 - 22 = 8 ms.
    """
    reading = read()
    profile = to_core(reading.profile)
    assert profile.lookup("block.5", 1, 512).forward_picoseconds == 3_000_000_000
    assert profile.lookup("other", 1, 512).forward_picoseconds == 4_000_000_000
    assert profile.lookup("block.0", 4, 512).forward_picoseconds == 11_000_000_000
    assert profile.lookup("other", 4, 512).forward_picoseconds == 8_000_000_000
    assert profile.lookup("block.0", 4, 512).backward_picoseconds is None
    assert len(profile.measurements) == 4
    assert profile.device == "A100"


def test_both_points_are_kept_and_said() -> None:
    reading = read()
    assert reading.facts["points"] == [
        "bsz 1 seq 512: 2 blocks 0.01 s, 4 blocks 0.016 s",
        "bsz 4 seq 512: 2 blocks 0.03 s, 4 blocks 0.052 s",
    ]
    for point in reading.facts["points"]:
        assert point in to_core(reading.profile).description
    said = " ".join(reading.assumptions)
    assert "difference of two layer counts" in said
    assert "backward stays unknown" in said
    assert {item.line: item.detail.split(": ", 1)[1] for item in reading.left_out} == {
        6: "between 2 and 4 blocks, which are used",
        7: "the time of one layer count alone: a block is the difference of two",
        8: "follows from the times of two layer counts, and agrees",
        9: "follows from the times of two layer counts, and agrees",
        10: "follows from the times of two layer counts, and agrees",
        11: "follows from the times of two layer counts, and agrees",
        12: "derived from times that the file does not hold for two counts",
    }


def test_a_backward_is_assumed_only_when_it_is_stated() -> None:
    reading = read(ratio=2.5)
    cost = to_core(reading.profile).lookup("block.5", 1, 512)
    assert cost.backward_picoseconds == 7_500_000_000
    assert "2.5 times its forward, as the import stated" in " ".join(reading.assumptions)


def test_many_points_are_kept_as_far_as_the_description_holds() -> None:
    values = {
        f"layernum[{blocks}]_bsz{size}_seq512": size + blocks * 1.0
        for size in range(1, 201)
        for blocks in (1, 2)
    }
    reading = read(json.dumps(values).encode())
    text = to_core(reading.profile).description
    assert text.endswith("more shapes")
    assert len(text) <= 2000
    assert reading.facts["shapes"] == 200


def test_it_is_recognised_by_its_content() -> None:
    assert looks_like_galvatron(COUNTS)
    assert looks_like_galvatron(b'{"layertype_0_bsz1_seq2048": 1}')
    assert not looks_like_galvatron(b'{"1_1_8": {"layernum[1]_bsz8_seq2048_rank0_ms": 9}}')
    assert not looks_like_galvatron(b'["layernum["]')


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b'{"layernum[2]_bsz1_seq512": 1}', 1, "no shape with the times of two layer counts"),
        (b'{"layertype_0_bsz1_seq512": 1}', 1, "no shape with the times of two layer counts"),
        (b"{}", 1, "no shape with the times of two layer counts"),
        (b"[]", 1, "is an object"),
        (changed("layernum[4]_bsz1_seq512", 9.0), 4, "a block would take no time"),
        (changed("layernum[4]_bsz1_seq512", 40.0), 4, "the rest less than none"),
        (changed("layernum[4]_bsz1_seq512", -1), 4, "number from 0"),
        (changed("layernum[4]_bsz1_seq512", "16"), 4, "number from 0"),
        (
            changed("layertype_0_bsz1_seq512", 3.1),
            8,
            "says 3.1 ms a sample; from 2 and 4 blocks 3",
        ),
        (changed("layertype_other_bsz4_seq512", 1.0), 11, "says 1 ms a sample"),
        (changed("layernum[2,2]_bsz1_seq512,512", 1.0), 13, "several types of layers"),
        (changed("layertype_1_bsz1_seq512", 1.0), 13, "several types of layers"),
        (changed("layernum[2]_bsz1", 1.0), 13, "no sequence length"),
        (changed("layernum[02]_bsz1_seq512", 1.0), 13, "stands twice"),
        (changed("layernum[0]_bsz1_seq512", 1.0), 13, "1 to 20000 blocks"),
        (changed("layernum[2]_bsz0_seq512", 1.0), 13, "samples and tokens"),
        (changed("forward", 1.0), 13, "no time of a computation profile"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(content: bytes, line: int, words: str) -> None:
    assert ("line", line) in [path for _, path in refusals(lambda: read(content))]
    assert words in refusal_text(lambda: read(content))


def test_no_line_is_without_effect() -> None:
    assert lines_without_effect(read, COUNTS) == []


def test_damaged_files_are_read_or_refused() -> None:
    assert 0 < read_damaged(read, COUNTS, seed=1) < 300
