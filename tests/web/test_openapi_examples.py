"""Recorded answers stand in the document where readers and tools look for them."""

from typing import Any

import pytest

from service.web.openapi_examples import Recorded, with_examples

DOCUMENT: dict[str, Any] = {
    "paths": {
        "/parts/{name}": {
            "get": {
                "operationId": "get_part",
                "parameters": [{"name": "name", "in": "path"}, {"name": "limit", "in": "query"}],
                "responses": {"200": {"content": {"text/csv": {}}}, "404": {}},
            },
            "delete": {"operationId": "archive_part", "responses": {"204": {}}},
        }
    }
}


def test_an_answer_stands_with_its_status_and_its_path() -> None:
    recorded = {"get_part": Recorded(200, {"name": "wheel"}, "a,b"), "more": Recorded(200, {})}
    operation = with_examples(DOCUMENT, recorded)["paths"]["/parts/{name}"]["get"]
    assert operation["parameters"][0]["example"] == "wheel"
    assert "example" not in operation["parameters"][1]
    assert operation["responses"]["200"]["content"]["text/csv"] == {"example": "a,b"}


def test_an_answer_without_a_body_shows_none_and_the_document_stays() -> None:
    shown = with_examples(DOCUMENT, {"archive_part": Recorded(204, {})})
    assert shown == DOCUMENT
    assert shown is not DOCUMENT


def test_a_status_the_operation_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        with_examples(DOCUMENT, {"get_part": Recorded(201, {"name": "wheel"}, "a,b")})
