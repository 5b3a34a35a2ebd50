"""Which format a file is in, and what is asked of the caller beside it."""

import pytest

from service.app.file_formats import FileFormat, choose_format, read_file
from service.app.model_formats import MODEL_FORMATS
from service.app.profile_formats import PROFILE_FORMATS
from service.core.errors import Fault, FaultCode, InvalidInput
from service.formats.documents.profile import MeasurementDocument, ProfileDocument
from service.formats.profile_reading import ProfileReading, Stated
from tests.core.refusals import refusal_text, refusals

GRAPH = (
    b"a -- Linear -- forward_compute_time=1.000, backward_compute_time=2.000, "
    b"activation_size=8.0, parameter_size=4.000\n"
)


def read_as_told(content: bytes, stated: Stated) -> ProfileReading:
    """A format whose files say how long a forward took, and no more."""
    try:
        seconds = float(content)
    except ValueError:
        fault = Fault(FaultCode.UNREADABLE, ("line", 1), "line 1 is no number")
        raise InvalidInput([fault]) from None
    row = MeasurementDocument(
        layer="a", microbatch_size=stated.microbatch_size or 0, forward_seconds=seconds
    )
    return ProfileReading(profile=ProfileDocument(measurements=[row]), model=None, facts={})


TOLD: FileFormat[Stated, ProfileReading] = FileFormat(
    "told", lambda _: True, read_as_told, needs={"microbatch_size": 1}
)


def test_a_file_is_read_in_the_format_of_its_content_or_in_the_one_named() -> None:
    assert choose_format(PROFILE_FORMATS, GRAPH, None).name == "pipedream"
    for each in PROFILE_FORMATS:
        assert choose_format(PROFILE_FORMATS, b"", each.name) is each
    for other in MODEL_FORMATS:
        assert choose_format(MODEL_FORMATS, b"", other.name) is other


@pytest.mark.parametrize(
    ("content", "name", "fault"),
    [
        (b"<xml/>", None, (FaultCode.UNREADABLE, ("file",))),
        (GRAPH, "graph", (FaultCode.NOT_SUPPORTED, ("format",))),
    ],
)
def test_what_is_in_no_format_is_told_which_there_are(
    content: bytes, name: str | None, fault: object
) -> None:
    assert refusals(lambda: choose_format(PROFILE_FORMATS, content, name)) == [fault]
    known = ", ".join(each.name for each in PROFILE_FORMATS)
    assert known in refusal_text(lambda: choose_format(PROFILE_FORMATS, content, name))


def test_what_a_format_needs_is_asked_for_together_with_the_faults_of_the_file() -> None:
    reading = read_file(TOLD, b"0.5", Stated(microbatch_size=3))
    assert [m.microbatch_size for m in reading.profile.measurements] == [3]
    missing = (FaultCode.MISSING_FIELD, ("microbatch_size",))
    broken = (FaultCode.UNREADABLE, ("file", "line", 1))
    assert refusals(lambda: read_file(TOLD, b"0.5", Stated())) == [missing]
    assert refusals(lambda: read_file(TOLD, b"fast", Stated())) == [missing, broken]


def test_an_option_that_a_format_does_not_take_is_refused_rather_than_ignored() -> None:
    stated = Stated(microbatch_size=3, device="H100")
    assert refusals(lambda: read_file(TOLD, b"0.5", stated)) == [
        (FaultCode.NOT_SUPPORTED, ("device",))
    ]


def test_a_fault_of_an_option_stays_with_the_option() -> None:
    pipedream = choose_format(PROFILE_FORMATS, GRAPH, None)
    for text in ("\0", "", "a\ud800", "x" * 128):
        stated = Stated(microbatch_size=1, device=text)
        assert refusals(lambda stated=stated: read_file(pipedream, GRAPH, stated)) == [  # type: ignore[misc]
            (FaultCode.OUT_OF_RANGE, ("device",))
        ]
