"""Measurements as CSV: every column, what is left out, and what is refused with its line."""

from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.profiles.profile import Point, Recompute
from service.formats.documents.profile import MeasurementDocument, to_core
from service.formats.profile_csv import (
    COLUMNS,
    REQUIRED_COLUMNS,
    looks_like_profile_csv,
    read_profile_csv,
)
from service.formats.profile_reading import ProfileReading, Stated
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

LAYERS = (Path(__file__).parent / "fixtures" / "profiles" / "layers.csv").read_bytes()
HEADER = "layer,microbatch_size,forward_seconds,backward_seconds"
DOCUMENTATION = Path(__file__).resolve().parents[2] / "docs" / "profile-formats.md"


def read(content: bytes = LAYERS, device: str | None = "H100") -> ProfileReading:
    return read_profile_csv(content, Stated(device=device))


def rows(*lines: str, header: str = HEADER) -> bytes:
    return "\n".join([header, *lines, ""]).encode()


def test_columns_are_the_fields_of_a_measurement_and_where_it_was_taken() -> None:
    fields = set(MeasurementDocument.__struct_fields__)
    assert set(COLUMNS) == fields | {"device", "precision"}
    assert fields.issuperset(REQUIRED_COLUMNS)


def test_each_column_is_documented() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert [name for name in COLUMNS if f"| `{name}` |" not in text] == []


def test_every_cell_arrives() -> None:
    reading = read()
    profile = to_core(reading.profile)
    assert (profile.device, profile.precision) == ("H100", "bf16")
    cost = profile.lookup("block.7", 1, 2048)
    assert (cost.forward_picoseconds, cost.backward_picoseconds) == (3_100_000_000, 6_200_000_000)
    assert cost.saved_activation_bytes == 1_048_576
    halves = profile.lookup("block.7", 2, 2048)
    assert halves.backward_input_picoseconds == 5_400_000_000
    assert halves.backward_weight_picoseconds == 5_200_000_000
    # Collectives are on top of each pass, 0.4 ms here.
    split = profile.lookup("block.7", 1, 2048, 2, Recompute.FULL)
    assert split.forward_picoseconds == 2_100_000_000
    assert split.recompute_picoseconds == 2_000_000_000
    assert profile.points("head") == (Point(1, 2048),)
    first, *_ = profile.measurements
    assert (first.samples, first.relative_deviation, first.workspace_bytes) == (100, 0.02, 4096)
    assert reading.model is None
    assert reading.facts["measurements"] == 4
    assert reading.facts["tensor_parallel"] == [1, 2]
    assert [item.line for item in reading.left_out] == [7]


def test_another_device_is_another_profile() -> None:
    reading = read(device="A100")
    assert [row.forward_seconds for row in reading.profile.measurements] == [0.007]
    assert len(reading.left_out) == 4


def test_several_devices_are_not_mixed() -> None:
    assert refusals(lambda: read(device=None)) == [(FaultCode.INCONSISTENT, ("device",))]
    assert "'A100', 'H100'" in refusal_text(lambda: read(device=None))
    assert refusals(lambda: read(device="B200"))[0] == (FaultCode.UNKNOWN_NAME, ("device",))


def test_what_no_row_says_is_stated_or_stays_unknown() -> None:
    content = rows("a,1,0.5,")
    assert read(content).profile.device == "H100"
    assert "the file does not say the device" in " ".join(read(content, None).assumptions)
    (row,) = read(content).profile.measurements
    assert to_core(read(content).profile).lookup("a", 1).backward_picoseconds is None
    assert row.forward_seconds == 0.5


def test_it_is_recognised_by_its_header() -> None:
    assert looks_like_profile_csv(LAYERS)
    assert looks_like_profile_csv(b"\xef\xbb\xbf\r\n" + rows())
    assert looks_like_profile_csv(rows(header='"layer", "forward_seconds","microbatch_size"'))
    assert not looks_like_profile_csv(rows(header="layer;microbatch_size;forward_seconds"))
    assert not looks_like_profile_csv(b"")
    without = rows(header="layer,microbatch_size")
    assert looks_like_profile_csv(without)
    assert "forward_seconds" in refusal_text(lambda: read(without))


def test_windows_line_ends_and_a_byte_order_mark_are_read() -> None:
    assert read(b"\xef\xbb\xbf" + LAYERS.replace(b"\n", b"\r\n")) == read()


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        (rows(), (), "no row"),
        (rows("a,1,0.5,", header="layer,microbatch_size,forward_seconds,cost"), 1, "unknown"),
        (rows("a,1,0.5,", header="layer,layer,microbatch_size,forward_seconds"), 1, "twice"),
        (rows("a", header="layer"), 1, "lacks the columns microbatch_size, forward_seconds"),
        (rows("a,1,0.5"), 2, "3 cells where the header has 4"),
        (rows("a,1,0.5,", 'b,1,"0.5,'), 3, "no row of CSV"),
        (rows("a,1,,"), 2, "empty forward_seconds"),
        (rows(",1,0.5,"), 2, "empty layer"),
        (rows("a b,1,0.5,"), 2, "name of letters"),
        (rows("a,0,0.5,"), 2, "whole number from 1"),
        (rows("a,1.0,0.5,"), 2, "whole number from 1"),
        (rows("a,1,1_0,"), 2, "number from 0 to 100000"),
        (rows("a,1,nan,"), 2, "number from 0 to 100000"),
        (rows("a,1,1e999,"), 2, "number from 0 to 100000"),
        (rows("a,1,-0,"), 2, "number from 0 to 100000"),
        (rows("a,1,0.5,1e-13"), 2, "backward_seconds"),
        (rows("a,1,0.5,", "a,1,0.6,"), 3, "earlier measurement"),
        (
            rows("a,1,0.5,much", header=HEADER.replace("backward_seconds", "recompute")),
            2,
            "is one of",
        ),
        (
            rows("a,1,0.5,full", header=HEADER.replace("backward_seconds", "recompute")),
            2,
            "recompute",
        ),
        (rows("a,1,0.5,\0"), 2, "NUL"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(content: bytes, place: object, words: str) -> None:
    path = ("line", place) if isinstance(place, int) else place
    assert [found for _, found in refusals(lambda: read(content))] == [path]
    assert words in refusal_text(lambda: read(content))


def test_faults_of_all_rows_come_together() -> None:
    content = rows("a,0,0.5,", "b,1,0.5,", "c,1,x,y")
    assert [path for _, path in refusals(lambda: read(content))] == [
        ("line", 2),
        ("line", 4),
        ("line", 4),
    ]


def test_no_line_is_without_effect() -> None:
    assert lines_without_effect(read, LAYERS) == []


def test_damaged_files_are_read_or_refused() -> None:
    assert 0 < read_damaged(read, LAYERS, seed=7) < 300
