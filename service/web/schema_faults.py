"""Every way in which a JSON value differs from the schema of a msgspec type.

msgspec stops at the first fault, which is right for speed and wrong for people. When its strict
decoding has failed, the same schema is walked by jsonschema and every difference becomes a
`ProblemError` that says what would be right.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from service.core.errors import FaultCode, Path
from service.web.problems import MAX_LISTED_FAULTS, ProblemError, RequestFaultCode, json_pointer

__all__ = ["schema_faults"]

Faults = Iterator[ProblemError]
# jsonschema.ValidationError; its own annotations say that each attribute may be unset.
SchemaError = Any

_TYPE_WORDS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_CODES: Mapping[str, RequestFaultCode | FaultCode] = {
    "const": RequestFaultCode.UNKNOWN_VALUE,
    "enum": RequestFaultCode.UNKNOWN_VALUE,
    "exclusiveMaximum": FaultCode.OUT_OF_RANGE,
    "exclusiveMinimum": FaultCode.OUT_OF_RANGE,
    "maxItems": RequestFaultCode.LENGTH_OUT_OF_BOUNDS,
    "maxLength": RequestFaultCode.LENGTH_OUT_OF_BOUNDS,
    "maxProperties": RequestFaultCode.LENGTH_OUT_OF_BOUNDS,
    "maximum": FaultCode.OUT_OF_RANGE,
    "minItems": RequestFaultCode.LENGTH_OUT_OF_BOUNDS,
    "minLength": RequestFaultCode.LENGTH_OUT_OF_BOUNDS,
    "minProperties": RequestFaultCode.LENGTH_OUT_OF_BOUNDS,
    "minimum": FaultCode.OUT_OF_RANGE,
    "multipleOf": FaultCode.OUT_OF_RANGE,
    "pattern": RequestFaultCode.PATTERN_MISMATCH,
    "type": RequestFaultCode.WRONG_TYPE,
}
_RULES = {
    "const": "is {rule}",
    "enum": "is one of {rule}",
    "exclusiveMaximum": "is below {rule}",
    "exclusiveMinimum": "is above {rule}",
    "maxItems": "has at most {rule} items",
    "maxLength": "has at most {rule} characters",
    "maxProperties": "has at most {rule} entries",
    "maximum": "is at most {rule}",
    "minItems": "has at least {rule} items",
    "minLength": "has at least {rule} characters",
    "minProperties": "has at least {rule} entries",
    "minimum": "is at least {rule}",
    "multipleOf": "is a multiple of {rule}",
    "pattern": "matches {rule}",
}


def schema_faults(value: Any, type_: Any) -> list[ProblemError]:
    """Differences between a decoded JSON value and a msgspec type, at most `MAX_LISTED_FAULTS`.

    Empty when the schema sees none; there are rules of msgspec that a schema can't say.
    """
    errors = _validator(type_).iter_errors(value)
    faults = (fault for error in errors for fault in _faults_of(error))
    # One field can break a rule in two branches of a union: it is said once.
    return list(dict.fromkeys(islice(faults, MAX_LISTED_FAULTS + 1)))


@lru_cache(maxsize=256)
def _validator(type_: Any) -> Any:
    return Draft202012Validator(msgspec.json.schema(type_))


def _faults_of(error: SchemaError) -> Faults:
    path: Path = tuple(error.absolute_path)
    rule = error.validator
    if rule == "required":
        missing = error.message.split("'")[1]
        detail = f"the field {missing!r} is required"
        yield _fault((*path, missing), FaultCode.MISSING_FIELD, detail)
    elif rule == "additionalProperties":
        known = sorted(error.schema.get("properties", ()))
        names = ", ".join(known) if known else "none"
        for name in error.instance:
            if name not in error.schema.get("properties", ()):
                detail = f"this field is unknown; known here are: {names}"
                yield _fault((*path, name), RequestFaultCode.UNKNOWN_FIELD, detail)
    elif rule in {"anyOf", "oneOf"}:
        yield from _faults_of_union(error, path)
    else:
        code = _CODES.get(str(rule), RequestFaultCode.INVALID_VALUE)
        yield _fault(path, code, _detail(error))


def _faults_of_union(error: SchemaError, path: Path) -> Faults:
    """The faults of the branch that was meant, or what the branches are when none was."""
    branches: dict[Any, list[SchemaError]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    discriminator = error.schema.get("discriminator")
    if discriminator is not None and isinstance(error.instance, dict):
        yield from _faults_of_tagged_union(error, path, discriminator, branches)
        return
    meant = [
        errors
        for errors in branches.values()
        if not any(e.validator == "type" and not e.relative_path for e in errors)
    ]
    if len(meant) == 1:
        for inner in meant[0]:
            yield from _faults_of(inner)
        return
    kinds = sorted({word for errors in branches.values() for word in map(_wanted, errors) if word})
    detail = f"this is {' or '.join(kinds)}" if kinds else "this matches none of the allowed forms"
    yield _fault(path, RequestFaultCode.WRONG_TYPE, f"{detail}; got {_name_of(error.instance)}")


def _faults_of_tagged_union(
    error: SchemaError,
    path: Path,
    discriminator: Mapping[str, Any],
    branches: Mapping[Any, list[SchemaError]],
) -> Faults:
    tag_field = str(discriminator["propertyName"])
    mapping: Mapping[str, str] = discriminator["mapping"]
    tag = error.instance.get(tag_field)
    if not isinstance(tag, str) or tag not in mapping:
        known = f"one of {', '.join(sorted(mapping))}"
        if tag_field in error.instance:
            detail = f"this is {known}; got {_name_of(tag)}"
            yield _fault((*path, tag_field), RequestFaultCode.UNKNOWN_VALUE, detail)
        else:
            detail = f"the field {tag_field!r} is required: {known}"
            yield _fault((*path, tag_field), FaultCode.MISSING_FIELD, detail)
        return
    references = [branch.get("$ref") for branch in error.validator_value]
    for inner in branches.get(references.index(mapping[tag]), ()):
        yield from _faults_of(inner)


def _wanted(error: SchemaError) -> str | None:
    if error.validator != "type" or error.relative_path:
        return None
    return _words(error.validator_value)


def _words(types: str | list[str]) -> str:
    names = [types] if isinstance(types, str) else types
    return " or ".join(_TYPE_WORDS.get(name, name) for name in names)


def _detail(error: SchemaError) -> str:
    rule, value = str(error.validator), error.validator_value
    if rule == "type":
        return f"this is {_words(value)}; got {_name_of(error.instance)}"
    if rule in _RULES:
        if rule == "enum":
            value = ", ".join(str(item) for item in value)
        if rule == "pattern":
            # The lookahead only says that the end is the end, which a reader expects anyway.
            value = str(value).replace(r"$(?!\n)", "$") + _in_words(error.schema)
        return f"this {_RULES[rule].format(rule=value)}; got {_name_of(error.instance)}"
    return f"this does not satisfy the schema's {rule}"


def _in_words(schema: Mapping[str, Any]) -> str:
    """What a pattern stands for, as far as the schema says it."""
    said = str(schema.get("description", "")).rstrip(".")
    examples = schema.get("examples") or ()
    such_as = f"such as {examples[0]}" if examples else ""
    words = ", ".join(part for part in (said, such_as) if part)
    return f" ({words})" if words else ""


def _name_of(value: Any) -> str:
    """A short name of a value: never more of it than fits a sentence."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        text = f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)
        text = f"{text}.0" if isinstance(value, float) and text.lstrip("-").isdigit() else text
        return text if len(text) <= 40 else "a very long number"
    if isinstance(value, str):
        return f"{value!r}" if len(value) <= 40 else f"a string of {len(value)} characters"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "an object"


def _fault(path: Path, code: RequestFaultCode | FaultCode, detail: str) -> ProblemError:
    return ProblemError(pointer=json_pointer(path), code=code, detail=detail)
