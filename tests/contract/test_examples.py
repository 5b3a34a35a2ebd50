"""Every operation of the contract shows a request and an answer, and both are true."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from service.resources import resource_folder
from tests.contract.conftest import LiveService
from tools.contract_examples import NAMES, WITHOUT_ANSWER, run_examples

CONTRACT: dict[str, Any] = json.loads((resource_folder("openapi") / "openapi.json").read_bytes())
# Computed times may differ in their last digit on another processor.
RELATIVE_TOLERANCE = 1e-9


def operations() -> Iterator[dict[str, Any]]:
    for methods in CONTRACT["paths"].values():
        yield from methods.values()


def media_types(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from operation.get("requestBody", {}).get("content", {}).values()
    for response in operation["responses"].values():
        named = CONTRACT["components"]["responses"].get(response.get("$ref", "").split("/")[-1])
        yield from (named or response).get("content", {}).values()


def is_close(given: Any, shown: Any) -> bool:
    """Whether two JSON values agree, numbers up to rounding."""
    if isinstance(given, dict) and isinstance(shown, dict):
        return given.keys() == shown.keys() and all(is_close(given[k], shown[k]) for k in shown)
    if isinstance(given, list) and isinstance(shown, list):
        return len(given) == len(shown) and all(map(is_close, given, shown))
    if isinstance(given, float) or isinstance(shown, float):
        return bool(given == pytest.approx(shown, rel=RELATIVE_TOLERANCE))
    return bool(given == shown)


async def test_each_is_answered_as_it_says(empty_service: LiveService) -> None:
    async with httpx.AsyncClient(
        base_url=empty_service.url, headers=empty_service.headers, timeout=60
    ) as http:
        answered = await run_examples(CONTRACT, http)
    assert answered.keys() == {operation["operationId"] for operation in operations()}
    wrong = []
    for operation in operations():
        recorded = answered[operation["operationId"]]
        content = operation["responses"][str(recorded.status)].get("content", {})
        shown = [media.get("example") for media in content.values()] or [None]
        if not is_close(recorded.body, shown[0]):
            wrong.append((operation["operationId"], recorded.body, shown[0]))
    assert wrong == []


def test_every_operation_shows_its_request_its_answer_and_its_refusals() -> None:
    silent = []
    for operation in operations():
        sent = operation.get("requestBody", {}).get("content", {}).values()
        answers = [
            media
            for status, response in operation["responses"].items()
            if status.startswith("2")
            for media in response.get("content", {}).values()
        ]
        # One of several ways to succeed is enough: first stored and stored again look alike.
        if any("example" not in media for media in sent) or (
            answers and not any("example" in media for media in answers)
        ):
            silent.append(operation["operationId"])
        refusals = [media for media in media_types(operation) if media.get("examples")]
        assert refusals, operation["operationId"]
    assert sorted(silent) == sorted(WITHOUT_ANSWER)


def test_every_example_fits_its_schema() -> None:
    checked = 0
    for operation in operations():
        for media in media_types(operation):
            examples = [media["example"]] if "example" in media else []
            examples += [
                CONTRACT["components"]["examples"][named["$ref"].rpartition("/")[2]]["value"]
                for named in media.get("examples", {}).values()
            ]
            schema = {**media["schema"], "components": CONTRACT["components"]}
            for example in examples:
                Draft202012Validator(schema).validate(example)
                checked += 1
    assert checked > 300  # most are refusals


def test_documents_are_those_of_the_repository() -> None:
    for kind, name in NAMES.items():
        body = CONTRACT["paths"][f"/v1/{kind}/{{name}}"]["put"]["requestBody"]["content"]
        file = resource_folder("examples") / kind / f"{name}.json"
        assert body["application/json"]["example"] == json.loads(file.read_bytes())
