"""Whether every value of one JSON Schema is a value of another, for what OpenAPI files use."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

__all__ = ["Comparison"]

# Said by an enumeration of an answer that clients were told may grow.
GROWING = "x-extensible-enum"

Schema = Mapping[str, Any]
Bound = tuple[float, bool]

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# Keywords whose difference can't be judged, so that any new or other one on the wider side counts.
_OPAQUE = ("pattern", "format", "multipleOf", "contentMediaType", "propertyNames", "not")
_WORDS = {"default", "description", "example", "examples", "title"}
_AT_LEAST = {"string": "minLength", "array": "minItems", "object": "minProperties"}
_AT_MOST = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}


class Comparison:
    """Values of schemas of one document against schemas of another.

    `sends_new`: the values are what the service sends, by the new document's schemas, and the other
    document is the old one; else they are what clients of the old document send.
    """

    def __init__(self, sent: Schema, taken: Schema, *, sends_new: bool) -> None:
        self._sent = sent
        self._taken = taken
        self._sends_new = sends_new
        self._under_way: set[tuple[str, str]] = set()

    def excess(self, sent: Any, taken: Any, where: str) -> Iterator[str]:
        """Reasons why a value of `sent` may be none of `taken`; none when all are.

        References are followed; a pair of references that is being compared already counts as
        equal, so recursive schemas end.
        """
        references = _reference(sent), _reference(taken)
        if all(references):
            if references in self._under_way:
                return
            self._under_way.add(references)
        sent, taken = _resolve(self._sent, sent), _resolve(self._taken, taken)
        yield from self._excess(sent, taken, where)
        self._under_way.discard(references)

    def _excess(self, sent: Schema, taken: Schema, where: str) -> Iterator[str]:
        yield from self._changed_default(sent, taken, where)
        if not taken.keys() - _WORDS:
            return  # it takes anything
        if (branches := _branches(sent)) is not None:
            for branch in branches:
                yield from self.excess(branch, taken, where)
            return
        if (branches := _branches(taken)) is not None:
            yield from self._none_of(sent, branches, where)
            return
        types = _types(sent)
        if lost := [name for name in types if not _takes(_types(taken), name)]:
            yield self._told(where, "type", " or ".join(sorted(lost)), _words(taken))
            return
        yield from self._values(sent, taken, where)
        for keyword in _OPAQUE:
            if keyword in taken and sent.get(keyword) != taken[keyword]:
                yield self._told(where, keyword, sent.get(keyword), taken[keyword])
        if "number" in types or "integer" in types:
            yield from self._bounds(sent, taken, where)
        for name in ("string", "array", "object"):
            if name in types:
                yield from self._sizes(sent, taken, name, where)
        if "array" in types:
            yield from self._items(sent, taken, where)
        if "object" in types:
            yield from self._properties(sent, taken, where)

    def _told(self, where: str, what: str, sent: Any, taken: Any) -> str:
        old, new = (taken, sent) if self._sends_new else (sent, taken)
        return f"{where}: {what} {_text(old)} -> {_text(new)}"

    def _changed_default(self, sent: Schema, taken: Schema, where: str) -> Iterator[str]:
        # What a client leaves out means something else then.
        if not self._sends_new and "default" in sent and sent["default"] != taken.get("default"):
            yield self._told(where, "default", sent["default"], taken.get("default"))

    def _none_of(self, sent: Schema, branches: list[Any], where: str) -> Iterator[str]:
        """Nothing when one branch takes all values, else what is amiss in the nearest one."""
        nearest: list[str] | None = None
        for branch in branches:
            before = set(self._under_way)
            found = list(self.excess(sent, branch, where))
            self._under_way = before
            if not found:
                return
            if nearest is None or _distance(found) < _distance(nearest):
                nearest = found
        yield from nearest or ()

    def _values(self, sent: Schema, taken: Schema, where: str) -> Iterator[str]:
        offered, allowed = _enumerated(sent), _enumerated(taken)
        if allowed is None:
            return
        if offered is None:
            yield self._told(where, "values", "any", allowed)
        elif not taken.get(GROWING) and (extra := [v for v in offered if v not in allowed]):
            change = "new values" if self._sends_new else "values that are gone:"
            yield f"{where}: {change} {_text(extra)}"

    def _bounds(self, sent: Schema, taken: Schema, where: str) -> Iterator[str]:
        if _lower(sent) < _lower(taken):
            yield self._told(where, "lower bound", _lower(sent)[0], _lower(taken)[0])
        if _upper(sent) > _upper(taken):
            yield self._told(where, "upper bound", _upper(sent)[0], _upper(taken)[0])

    def _sizes(self, sent: Schema, taken: Schema, name: str, where: str) -> Iterator[str]:
        low, high = _AT_LEAST[name], _AT_MOST[name]
        if sent.get(low, 0) < taken.get(low, 0):
            yield self._told(where, low, sent.get(low, 0), taken[low])
        if sent.get(high, inf) > taken.get(high, inf):
            yield self._told(where, high, sent.get(high, "none"), taken[high])

    def _items(self, sent: Schema, taken: Schema, where: str) -> Iterator[str]:
        if taken.get("uniqueItems") and not sent.get("uniqueItems"):
            yield f"{where}: items are unique now"
        ours, theirs = sent.get("prefixItems", []), taken.get("prefixItems", [])
        if len(ours) != len(theirs):
            yield self._told(where, "length of the tuple", len(ours), len(theirs))
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from self.excess(one, other, f"{where}[{index}]")
        yield from self.excess(sent.get("items", True), taken.get("items", True), f"{where}[]")

    def _properties(self, sent: Schema, taken: Schema, where: str) -> Iterator[str]:
        ours, theirs = sent.get("properties", {}), taken.get("properties", {})
        for name in taken.get("required", ()):
            if name not in sent.get("required", ()):
                change = "may be absent now" if self._sends_new else "is required now"
                yield f"{where}.{name}: the field {change}"
        others = taken.get("additionalProperties", True)
        for name, schema in ours.items():
            here = f"{where}.{name}"
            if name in theirs:
                yield from self.excess(schema, theirs[name], here)
            elif others is False:
                change = "is new where none was to be" if self._sends_new else "is gone"
                yield f"{here}: the field {change}"
            else:
                yield from self.excess(schema, others, here)
        if self._sends_new:
            yield from (f"{where}.{n}: the field is gone" for n in theirs if n not in ours)
        rest = sent.get("additionalProperties", True)
        if rest is not False:
            if others is False:
                yield self._told(where, "further fields", "allowed", "refused")
            else:
                yield from self.excess(rest, others, f"{where}.*")


def _reference(schema: Any) -> str:
    return str(schema.get("$ref", "")) if isinstance(schema, dict) else ""


def _resolve(document: Schema, schema: Any) -> Schema:
    """A schema without a reference at its top, and without allOf; true and false as objects."""
    if schema is True:
        return {}
    if schema is False:
        return {"enum": []}
    beside: dict[str, Any] = {}
    while "$ref" in schema:
        beside = {**{k: v for k, v in schema.items() if k != "$ref"}, **beside}
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    merged = {**schema, **beside}
    for part in merged.pop("allOf", ()):
        merged = {**_resolve(document, part), **merged}
    return merged


def _branches(schema: Schema) -> list[Any] | None:
    """The schemas of a union, each with what stands beside it; None when it is none."""
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            own = {"anyOf", "oneOf", "discriminator"} | _WORDS
            beside = {key: value for key, value in schema.items() if key not in own}
            return [{**branch, **beside} if beside else branch for branch in schema[keyword]]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": name} for name in schema["type"]]
    return None


def _types(schema: Schema) -> tuple[str, ...]:
    if "type" in schema:
        return (schema["type"],)
    values = _enumerated(schema)
    if values is not None:
        return tuple({_type_of(value) for value in values})
    return _TYPES


def _takes(types: tuple[str, ...], name: str) -> bool:
    return name in types or (name == "integer" and "number" in types)


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _enumerated(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values: list[Any] | None = schema.get("enum")
    return values


def _lower(schema: Schema) -> Bound:
    bounds = [(schema.get("minimum", -inf), False), (schema.get("exclusiveMinimum", -inf), True)]
    return max(bounds)


def _upper(schema: Schema) -> Bound:
    # An exclusive bound lies below the same inclusive one.
    bounds = [(schema.get("maximum", inf), True), (schema.get("exclusiveMaximum", inf), False)]
    return min(bounds)


def _distance(reasons: list[str]) -> tuple[bool, int]:
    """How far a branch is from what was meant: another type or tag is farther than any detail."""
    return any(": type " in reason or ".kind: " in reason for reason in reasons), len(reasons)


def _words(schema: Schema) -> str:
    types = _types(schema)
    return "any" if types == _TYPES else " or ".join(sorted(types))


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:80] + "..."
