"""References are names, newest or numbered."""

import pytest

from service.app.document_kinds import DOCUMENT_TYPES
from service.app.documents import archive, check, put
from service.app.errors import NotFound
from service.app.ports import DocumentKind
from service.app.references import (
    Absent,
    Reference,
    find,
    look_up,
    parse_name,
    parse_reference,
    resolve,
    resolve_in_path,
    singular,
)
from service.core.errors import FaultCode, InvalidInput
from service.formats.documents.model import LayerDocument, ModelDocument
from tests.app.fakes import fake_services


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("a", Reference("a")),
        ("gpt-48", Reference("gpt-48")),
        ("gpt-48@3", Reference("gpt-48", 3)),
        ("a" * 63 + "@999999999", Reference("a" * 63, 999_999_999)),
    ],
)
def test_a_reference_is_a_name_or_a_numbered_one(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "1a",
        "-a",
        "a_b",
        "a.b",
        "a@",
        "a@0",
        "a@01",
        "a@-1",
        "a@1.0",
        "a@1@2",
        "a@1000000000",
        "a@१",
        "a\n",
        "a@1\n",
        " a",
        "a" * 64,
        "@1",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert parse_reference(text) is None


def test_a_name_has_no_revision() -> None:
    assert parse_name("a") == "a"
    assert parse_name("a@1") is None
    assert parse_name("") is None


def model(*layers: str) -> ModelDocument:
    return ModelDocument(
        layers=[LayerDocument(name=name, kind="block") for name in layers], tensors=[]
    )


async def test_references_are_resolved_to_the_newest_or_the_named() -> None:
    services = fake_services()
    await put(services, DocumentKind.MODEL, "m", model("a"))
    await put(services, DocumentKind.MODEL, "m", model("b"))
    async with services.storage.reading() as unit:
        newest = await resolve(unit, DocumentKind.MODEL, "m", ("costs", "model"))
        first = await resolve(unit, DocumentKind.MODEL, "m@1", ("costs", "model"))
        assert (newest.reference, first.reference) == ("m@2", "m@1")
        with pytest.raises(InvalidInput) as caught:
            await resolve(unit, DocumentKind.MODEL, "m@3", ("costs", "model"))
        (fault,) = caught.value.faults
        assert (fault.code, fault.path) == (FaultCode.UNKNOWN_REFERENCE, ("costs", "model"))
        assert "'m@3'" in fault.detail
        assert await find(unit, DocumentKind.PROFILE, "m") is None
        with pytest.raises(NotFound, match="no model 'm@3' is stored"):
            await resolve_in_path(unit, DocumentKind.MODEL, "m@3")
        with pytest.raises(NotFound):
            await resolve_in_path(unit, DocumentKind.MODEL, "no reference" * 100)


async def test_what_is_archived_resolves_for_old_references_only() -> None:
    services = fake_services()
    await put(services, DocumentKind.MODEL, "m", model("a"))
    await put(services, DocumentKind.MODEL, "m", model("b"))
    async with services.storage.reading() as unit:
        for text in ("m", "m@1", "m@2"):
            assert await find(unit, DocumentKind.MODEL, text, new=True) is not None
    await archive(services, DocumentKind.MODEL, "m")
    async with services.storage.reading() as unit:
        assert await find(unit, DocumentKind.MODEL, "m") is None
        assert await find(unit, DocumentKind.MODEL, "m@1") is not None
        for text in ("m", "m@1", "m@2"):
            assert await find(unit, DocumentKind.MODEL, text, new=True) is None


async def test_an_archived_name_says_what_still_resolves() -> None:
    services = fake_services()
    await put(services, DocumentKind.MODEL, "m", model("a"))
    await put(services, DocumentKind.MODEL, "m", model("b"))
    async with services.storage.reading() as unit:
        later = await look_up(unit, DocumentKind.MODEL, "m@9")
        assert later == Absent("no model 'm@9' is stored; the newest revision is 'm@2'")
    await archive(services, DocumentKind.MODEL, "m")
    async with services.storage.reading() as unit:
        for text, new, detail in (
            ("m", False, "the model 'm' is archived; 'm@2' still resolves"),
            ("m@9", False, "no model 'm@9' is stored; 'm@2', which is archived, still resolves"),
            ("m", True, "storing it again under that name takes it back"),
            ("m@2", True, "the model 'm' is archived, so nothing new refers to it"),
            ("n", False, "no model 'n' is stored; give the name"),
            ("no reference", True, "no model 'no reference' is stored; give the name"),
        ):
            found = await look_up(unit, DocumentKind.MODEL, text, new=new)
            assert isinstance(found, Absent)
            assert detail in found.detail
        with pytest.raises(NotFound, match="the model 'm' is archived; 'm@2' still resolves"):
            await resolve_in_path(unit, DocumentKind.MODEL, "m")
        with pytest.raises(InvalidInput, match="archived"):
            await resolve(unit, DocumentKind.MODEL, "m", ("costs", "model"))


async def test_each_kind_has_its_word_and_its_type() -> None:
    words = {"topology", "model", "profile", "routing", "plan"}
    assert {singular(kind) for kind in DocumentKind} == words
    assert set(DOCUMENT_TYPES) == set(DocumentKind)
    checked = await check(fake_services(), DocumentKind.MODEL, model("a"))
    assert checked.digest.startswith("sha256:")
