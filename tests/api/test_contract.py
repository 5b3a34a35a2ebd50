"""The published contract is the one the service has, and says what it should of each route."""

import json
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

from service.api.contract import build_contract
from service.resources import resource_folder
from service.web.openapi import render
from service.web.problem_types import PROBLEM_TYPES
from tools.contract_examples import generated_files


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(render(build_contract()))
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


# Of every answer; or what HTTP says by itself; or of refusals too, as the contract says in words.
UNNAMED_HEADERS = {"content-length", "content-type", "ratelimit", "ratelimit-policy"}
STAGE = {"forward_seconds": 0.006, "backward_seconds": 0.012}
PLAN = {
    "costs": {"stages": [STAGE]},
    "schedule": {"kind": "gpipe"},
    "workload": {"microbatches": 3},
}
ONE = "/v1/plans/{name}"


@pytest.mark.parametrize(
    ("path", "method", "headers", "status", "sent"),
    [
        (ONE, "PUT", {}, 201, {"etag", "content-location"}),
        (ONE, "PUT", {"If-Match": '"0"'}, 412, set()),
        (ONE, "DELETE", {}, 428, set()),
        ("/v1/estimates", "POST", {}, 201, {"etag", "content-location", "location"}),
        ("/v1/tokens", "POST", {}, 403, {"www-authenticate"}),
        ("/v1/estimates/{digest}", "GET", {}, 405, {"allow"}),
    ],
)
async def test_headers_are_in_the_contract(
    document: dict[str, Any],
    client: httpx.AsyncClient,
    path: str,
    method: str,
    headers: dict[str, str],
    status: int,
    sent: set[str],
) -> None:
    url = path.replace("{name}", "one").replace("{digest}", "batches")
    body = {"/v1/estimates": {"plan": PLAN}, "/v1/tokens": {"scopes": ["read"]}}.get(path, PLAN)
    answer = await client.request(method, url, headers=headers, json=body)
    assert answer.status_code == status
    response = document["paths"][path][method.lower()]["responses"][str(status)]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    named = {name.lower() for name in response["headers"]}
    assert sent <= set(answer.headers) <= named | UNNAMED_HEADERS


async def test_every_answer_of_an_estimate_has_its_headers_in_the_contract(
    document: dict[str, Any], client: httpx.AsyncClient
) -> None:
    first = await client.put("/v1/plans/one", json=PLAN)
    refused = await client.put("/v1/plans/one", json=PLAN, headers={"If-None-Match": "*"})
    assert (refused.status_code, refused.headers["etag"]) == (412, first.headers["etag"])
    assert "ETag" in document["components"]["responses"]["precondition-failed"]["headers"]
    key = {"Idempotency-Key": "one"}
    for status in (201, 201, 200):
        answer = await client.post("/v1/estimates", json={"plan": "one"}, headers=key)
        assert answer.status_code == status
        assert answer.headers["stagefare-plan"] == "one@1"
        responses = document["paths"]["/v1/estimates"]["post"]["responses"]
        named = {name.lower() for name in responses[str(status)]["headers"]}
        assert set(answer.headers) <= named | UNNAMED_HEADERS
        key = key if status == 201 and "idempotency-replayed" not in answer.headers else {}


def test_moments_say_that_they_are(document: dict[str, Any]) -> None:
    moments = [
        field
        for schema in document["components"]["schemas"].values()
        for name, field in schema.get("properties", {}).items()
        if name.endswith("_at")
    ]
    assert len(moments) > 5
    assert all(field.get("format") == "date-time" for field in moments)


def test_every_problem_type_has_a_page() -> None:
    pages = {path.stem for path in (resource_folder("openapi") / "problems").iterdir()}
    assert pages == {problem_type.slug for problem_type in PROBLEM_TYPES}


def test_every_kind_of_document_has_the_same_verbs(document: dict[str, Any]) -> None:
    for kind in ("topologies", "models", "profiles", "routings", "plans"):
        assert set(document["paths"][f"/v1/{kind}"]) == {"get"}
        assert set(document["paths"][f"/v1/{kind}/{{name}}"]) == {"get", "put", "delete"}
        assert set(document["paths"][f"/v1/{kind}/{{name}}/revisions"]) == {"get"}


def test_names_that_are_shown_are_those_of_examples(document: dict[str, Any]) -> None:
    """Whoever tries a route from the reference finds a document that `scripts/serve` has stored."""
    stored: dict[str, set[str]] = {}
    for path in resource_folder("examples").glob("*/*.json"):
        stored.setdefault(path.parent.name, set()).add(path.stem)
    assert len(stored) == 5
    for kind, names in stored.items():
        for verb, route in (("get", "{name}"), ("get", "{name}/revisions"), ("delete", "{name}")):
            parameters = document["paths"][f"/v1/{kind}/{route}"][verb]["parameters"]
            (example,) = next(one for one in parameters if one["name"] == "name")["schema"][
                "examples"
            ]
            assert example.removesuffix("@1") in names


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


# A number that is no quantity but a place in a list, or a count of what its name says.
_PLAIN_NUMBERS = {"microbatch", "microbatches", "rank", "stage", "step_count", "steps"}
_UNITS = ("_seconds", "_bytes", "_flops", "_fraction", "_ratio", "_factor", "_rank", "_stage")


def test_numbers_say_their_unit_by_name_or_in_words(document: dict[str, Any]) -> None:
    silent = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, part in schema.get("properties", {}).items()
        if part.get("type") in {"integer", "number"}
        and "description" not in part
        and field not in _PLAIN_NUMBERS
        and not f"_{field}".endswith(_UNITS)
        and not any(f"{unit.strip('_')}_per_" in field for unit in _UNITS)
    ]
    assert silent == ["BacklogAnswer.final_backlog"]  # in whatever the caller counts


def test_each_name_of_a_type_means_one_type(document: dict[str, Any]) -> None:
    """Two of one name are told apart by their modules, which are nobody's business outside."""
    assert [name for name in document["components"]["schemas"] if "." in name] == []


def test_unions_of_objects_say_which_one_is_meant(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    def objects(node: dict[str, Any]) -> list[str]:
        branches = [*node.get("anyOf", ()), *node.get("oneOf", ())]
        names = [branch["$ref"].rpartition("/")[2] for branch in branches if "$ref" in branch]
        return [name for name in names if schemas[name].get("type") == "object"]

    def walk(node: Any, where: str) -> list[str]:
        if isinstance(node, list):
            return [
                found
                for index, inner in enumerate(node)
                for found in walk(inner, f"{where}/{index}")
            ]
        if not isinstance(node, dict):
            return []
        is_silent = len(objects(node)) > 1 and "discriminator" not in node
        inner = [found for key, value in node.items() for found in walk(value, f"{where}/{key}")]
        return [*([where] if is_silent else []), *inner]

    assert walk(schemas, "") == []
