"""The published contract is the one the service has, and says what it should of each route."""

import json
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from service.api.contract import OPENAPI_PATH, generated_files
from service.resources import resource_folder
from service.web.problem_types import PROBLEM_TYPES


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(generated_files()[OPENAPI_PATH])
    return read


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    validate(document)


def test_the_committed_files_are_the_generated_ones() -> None:
    root = resource_folder("openapi").parent
    stale = [
        str(path)
        for path, content in generated_files().items()
        if not (root / path).is_file() or (root / path).read_bytes() != content
    ]
    assert not stale, "run tools/generate.py"


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    silent = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if not (operation.get("summary") and operation.get("description"))
    ]
    assert not silent


async def test_the_committed_document_is_served(client: httpx.AsyncClient) -> None:
    served = await client.get("/openapi.json")
    assert served.headers["content-type"] == "application/json"
    assert served.content == (resource_folder("openapi") / "openapi.json").read_bytes()


def test_every_problem_type_has_a_page() -> None:
    pages = {path.stem for path in generated_files() if path.suffix == ".md"}
    assert pages == {problem_type.slug for problem_type in PROBLEM_TYPES}


def test_every_kind_of_document_has_the_same_verbs(document: dict[str, Any]) -> None:
    for kind in ("topologies", "models", "profiles", "plans"):
        assert set(document["paths"][f"/v1/{kind}"]) == {"get"}
        assert set(document["paths"][f"/v1/{kind}/{{name}}"]) == {"get", "put", "delete"}
        assert set(document["paths"][f"/v1/{kind}/{{name}}/revisions"]) == {"get"}


def test_examples_of_bodies_fit_their_schemas(document: dict[str, Any]) -> None:
    checked = 0
    for operations in document["paths"].values():
        for operation in operations.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if "example" in body:
                schema = {**body["schema"], "components": document["components"]}
                Draft202012Validator(schema).validate(body["example"])
                checked += 1
    assert checked >= 4


def _schemas(node: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    if isinstance(node, dict):
        if "type" in node and isinstance(node["type"], str):
            found.append((where, node))
        for key, inner in node.items():
            found += _schemas(inner, f"{where}/{key}")
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            found += _schemas(inner, f"{where}/{index}")
    return found


def _is_bounded_text(schema: dict[str, Any]) -> bool:
    if {"maxLength", "enum", "const", "format"} & schema.keys():
        return True
    # A pattern bounds a text when each of its repetitions is counted.
    return "pattern" in schema and not {"*", "+"} & set(schema["pattern"])


def _reachable(document: dict[str, Any], node: Any, seen: set[str]) -> None:
    """Names of the components a schema refers to, directly or not."""
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            name = reference.rpartition("/")[2]
            if name not in seen:
                seen.add(name)
                _reachable(document, document["components"]["schemas"][name], seen)
        for key, inner in node.items():
            if key != "discriminator":
                _reachable(document, inner, seen)
    elif isinstance(node, list):
        for inner in node:
            _reachable(document, inner, seen)


def test_everything_the_service_reads_is_bounded(document: dict[str, Any]) -> None:
    names: set[str] = set()
    inline: list[Any] = []
    for operations in document["paths"].values():
        for operation in operations.values():
            if "requestBody" in operation:
                for media in operation["requestBody"]["content"].values():
                    _reachable(document, media["schema"], names)
            inline += [
                {f"{operation['operationId']} {parameter['name']}": parameter["schema"]}
                for parameter in operation.get("parameters", [])
            ]
    schemas = [(name, document["components"]["schemas"][name]) for name in sorted(names)]
    unbounded = []
    for name, schema in [*schemas, ("parameters", inline)]:
        for where, part in _schemas(schema, name):
            kind = part["type"]
            is_bounded = {
                "string": _is_bounded_text(part),
                "integer": "maximum" in part or "exclusiveMaximum" in part or "enum" in part,
                "number": "maximum" in part or "exclusiveMaximum" in part,
                "array": "maxItems" in part,
                "object": part.get("additionalProperties") is False or "maxProperties" in part,
            }
            if not is_bounded.get(kind, True) and "contentMediaType" not in part:
                unbounded.append(where)
    assert unbounded == []
