"""Whatever an importer reads of damaged files is a document that its own schema takes."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from service.app.file_formats import choose_format, read_file
from service.app.model_formats import MODEL_FORMATS
from service.app.profile_formats import PROFILE_FORMATS
from service.core.errors import InvalidInput
from service.formats.documents.canonical import canonical_bytes
from service.formats.model_reading import ModelReading, StatedModel
from service.formats.profile_reading import ProfileReading, Stated
from tests.formats.damage import damaged

FIXTURES = Path(__file__).parent / "fixtures"
FILES = [*sorted((FIXTURES / "profiles").iterdir()), *sorted((FIXTURES / "models").iterdir())]
TIMES = 100
# What a program that goes wrong writes for a value.
ODD = ("null", "-1", "0", "1e308", '""', r'"\u0000"', r'"\ud800"', "[]", "{}", "true", "0.5", '"x"')


def with_odd_values(content: bytes, random: Random) -> Iterator[bytes]:
    """One value of a JSON file replaced, or one word of a line."""
    values = list(re.finditer(rb"(?<=: )[^\n,{}\[\]]+|(?<=,)[^\n,]+|(?<=[a-z] )[^\s]+", content))
    for _ in range(TIMES):
        value = random.choice(values)
        odd = random.choice(ODD).encode()
        yield content[: value.start()] + odd + content[value.end() :]


def reading_of(path: Path, content: bytes) -> ProfileReading | ModelReading:
    if path.parent.name == "models":
        return read_file(choose_format(MODEL_FORMATS, content, None), content, StatedModel())
    chosen = choose_format(PROFILE_FORMATS, content, None)
    stated: dict[str, Any] = {"device": "H100"} if chosen.name == "csv" else {}
    return read_file(chosen, content, Stated(**chosen.needs, **stated))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_read_is_valid_and_can_be_told(path: Path) -> None:
    content, random = path.read_bytes(), Random(9)
    versions = [*damaged(content, seed=21, times=TIMES), *with_odd_values(content, random)]
    read = 0
    for version in versions:
        try:
            reading = reading_of(path, version)
        except InvalidInput as refused:
            msgspec.json.encode([fault.detail for fault in refused.faults])
            continue
        read += 1
        told = [asdict(item) for item in reading.left_out]
        msgspec.json.encode([dict(reading.facts), list(reading.assumptions), told])
        for document in (reading.model, getattr(reading, "profile", None)):
            if document is not None:
                content_again = canonical_bytes(document)
                assert msgspec.json.decode(content_again, type=type(document)) == document
    assert 0 < read < len(versions)
