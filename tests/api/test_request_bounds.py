"""Whatever the contract lets a caller send has a bound: strings, lists, maps and numbers.

Answers are bounded by what was asked, so their lists need no numbers of their own.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from service.api.contract import published_contract

Schema = dict[str, Any]

# A quantifier without an end. Possessive and lazy ones follow one of these.
_ENDLESS = re.compile(r"[*+]|\{\d+,\}")
_CHARACTER_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.")


def is_bounded_pattern(pattern: str) -> bool:
    """Whether all that matches is shorter than some length."""
    without_classes = _CHARACTER_CLASS.sub("x", pattern)
    return (
        pattern.startswith("^")
        and "$" in without_classes
        and _ENDLESS.search(without_classes) is None
    )


def is_bounded(schema: Schema, type_: str) -> bool:
    if {"enum", "const"} & schema.keys() or schema.get("format") == "date":
        return True
    if type_ == "string":
        # A file in a form is bounded by the size of the body.
        return bool({"maxLength", "contentMediaType"} & schema.keys()) or is_bounded_pattern(
            schema.get("pattern", "")
        )
    if type_ == "array":
        return "maxItems" in schema
    if type_ == "object":
        closed = schema.get("additionalProperties") is False
        return "maxProperties" in schema or closed
    if type_ in {"integer", "number"}:
        return bool({"minimum", "exclusiveMinimum"} & schema.keys()) and bool(
            {"maximum", "exclusiveMaximum"} & schema.keys()
        )
    return True


def unbounded(schema: Schema, named: dict[str, Schema], at: str, seen: set[str]) -> Iterator[str]:
    """Places below a schema whose values have no bound; each named schema is looked at once."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            seen.add(name)
            yield from unbounded(named[name], named, name, seen)
        return
    types = schema.get("type", [])
    for type_ in [types] if isinstance(types, str) else types:
        if not is_bounded(schema, type_):
            yield f"{at}: {type_}"
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in schema.get(keyword, []):
            yield from unbounded(part, named, at, seen)
    for keyword in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(keyword), dict):
            yield from unbounded(schema[keyword], named, f"{at} {keyword}", seen)
    for name, part in schema.get("properties", {}).items():
        yield from unbounded(part, named, f"{at}.{name}", seen)


def test_all_that_may_be_sent_is_bounded() -> None:
    document = json.loads(published_contract())
    named = document["components"]["schemas"]
    seen: set[str] = set()
    found: list[str] = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            for parameter in operation.get("parameters", []):
                schema = parameter["schema"]
                found += unbounded(schema, named, f"{where} {parameter['name']}", seen)
            for media in operation.get("requestBody", {}).get("content", {}).values():
                found += unbounded(media["schema"], named, where, seen)
    assert found == []
    assert {"PlanDocument", "TopologyDocument", "ModelDocument", "ProfileDocument"} <= seen
    assert "ProfileImportForm" in seen


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "string"}, "x: string"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "x: string"),
        ({"type": "string", "pattern": "^[a-z]{1,}$"}, "x: string"),
        ({"type": "string", "pattern": "[a-z]{1,5}"}, "x: string"),
        ({"type": ["string", "null"], "minLength": 1}, "x: string"),
        ({"type": "array", "items": {"type": "boolean"}}, "x: array"),
        ({"type": "array", "maxItems": 3, "items": {"type": "string"}}, "x items: string"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "x: object"),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}}, "x: object"),
        ({"type": "integer", "minimum": 0}, "x: integer"),
        ({"type": "number", "maximum": 0}, "x: number"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "x: string"),
        ({"$ref": "#/components/schemas/Y"}, "Y.a: string"),
    ],
    ids=str,
)
def test_what_has_no_bound_is_found(schema: Schema, place: str) -> None:
    named = {
        "Y": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"a": {"type": "string"}, "b": {"$ref": "#/components/schemas/Y"}},
        }
    }
    assert list(unbounded(schema, named, "x", set())) == [place]


@pytest.mark.parametrize(
    "pattern", ["^[a-z*+]{1,5}$", r"^a\+(b{2}|c)?$(?!\n)", r"^[^\x00-\x1f]{0,9}$"]
)
def test_a_pattern_can_be_the_bound(pattern: str) -> None:
    assert not list(unbounded({"type": "string", "pattern": pattern}, {}, "x", set()))
