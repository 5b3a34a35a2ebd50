"""What in one OpenAPI document breaks clients that were written against an earlier one.

    python tools/contract_changes.py            hold the present document against the last release

The rule is one: whatever the earlier document let a client send has to be accepted still, and
whatever the service sends has to be what the earlier document promised. So a request schema may
only widen and a response schema may only narrow, and both questions are the same one, asked of the
two schemas in one order or the other: is every value of this schema a value of that one?

Where schemas can't be compared (two patterns, two formats), any difference counts. Texts and
examples never count, nor do new statuses of refusals and new values of an enumeration that says it
may grow (`x-extensible-enum`): a client has to expect those.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tools.contract_schemas import Comparison

__all__ = ["breaking_changes", "main", "may_break"]

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "openapi" / "openapi.json"
RELEASED = ROOT / "openapi" / "released"

Document = Mapping[str, Any]
Version = tuple[int, ...]


class _Side(Enum):
    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True)
class _Pair:
    """The two documents, and comparisons between parts of them."""

    old: Document
    new: Document

    def schema(self, side: _Side, old: Any, new: Any, where: str) -> Iterator[str]:
        """What of a schema breaks on its side of the wire."""
        if side is _Side.REQUEST:
            comparison = Comparison(self.old, self.new, sends_new=False)
            yield from comparison.excess(old, new, where)
        else:
            comparison = Comparison(self.new, self.old, sends_new=True)
            yield from comparison.excess(new, old, where)

    def content(self, side: _Side, old: Any, new: Any, where: str) -> Iterator[str]:
        """What of a map of media types breaks."""
        for media_type, body in old.items():
            if media_type not in new:
                yield f"{where}: {media_type} is gone"
                continue
            schemas = body.get("schema", {}), new[media_type].get("schema", {})
            yield from self.schema(side, *schemas, f"{where} {media_type}")


def breaking_changes(old: Document, new: Document) -> list[str]:
    """Each change from `old` to `new` that breaks a client, with its place."""
    pair = _Pair(old, new)
    found: list[str] = []
    for path, methods in old["paths"].items():
        for method, operation in methods.items():
            where = f"{method.upper()} {path}"
            present = new["paths"].get(path, {}).get(method)
            if present is None:
                found.append(f"{where}: the operation is gone")
            else:
                found += _operation(pair, operation, present, where)
    kept = new.get("components", {}).get("securitySchemes", {})
    for name, scheme in old.get("components", {}).get("securitySchemes", {}).items():
        if {**scheme, "description": ""} != {**kept.get(name, {}), "description": ""}:
            found.append(f"security scheme {name}: it is another one")
    gone = {server["url"] for server in old.get("servers", ())}
    gone -= {server["url"] for server in new.get("servers", ())}
    found += [f"server {url}: it is gone" for url in sorted(gone)]
    return list(dict.fromkeys(found))


def _operation(pair: _Pair, old: Document, new: Document, where: str) -> Iterator[str]:
    if old.get("operationId") != new.get("operationId"):
        yield f"{where}: the operation id is {new.get('operationId')}, not {old.get('operationId')}"
    yield from _parameters(pair, old, new, where)
    yield from _request_body(pair, old.get("requestBody"), new.get("requestBody"), where)
    yield from _responses(pair, old["responses"], new["responses"], where)
    yield from _security(
        old.get("security", pair.old.get("security", [])),
        new.get("security", pair.new.get("security", [])),
        where,
    )


def _parameters(pair: _Pair, old: Document, new: Document, where: str) -> Iterator[str]:
    before = {(p["in"], p["name"]): p for p in _resolved_list(pair.old, old.get("parameters", ()))}
    after = {(p["in"], p["name"]): p for p in _resolved_list(pair.new, new.get("parameters", ()))}
    for (place, name), parameter in before.items():
        here = f"{where} {place} parameter {name}"
        present = after.get((place, name))
        if present is None:
            yield f"{here}: it is gone"
            continue
        if present.get("required") and not parameter.get("required"):
            yield f"{here}: it is required now"
        schemas = parameter.get("schema", {}), present.get("schema", {})
        yield from pair.schema(_Side.REQUEST, *schemas, here)
    for (place, name), parameter in after.items():
        if (place, name) not in before and parameter.get("required"):
            yield f"{where} {place} parameter {name}: it is new and required"


def _request_body(pair: _Pair, old: Any, new: Any, where: str) -> Iterator[str]:
    old, new = _resolved(pair.old, old), _resolved(pair.new, new)
    here = f"{where} request"
    if old is None:
        if new is not None and new.get("required"):
            yield f"{here}: a body is required now"
        return
    if new is None:
        yield f"{here}: no body is taken any more"
        return
    if new.get("required") and not old.get("required"):
        yield f"{here}: the body is required now"
    yield from pair.content(_Side.REQUEST, old["content"], new["content"], here)


def _responses(pair: _Pair, old: Document, new: Document, where: str) -> Iterator[str]:
    for status, response in old.items():
        if _is_refusal(status):
            continue
        here = f"{where} response {status}"
        if status not in new:
            yield f"{here}: it is gone"
            continue
        before, after = _resolved(pair.old, response), _resolved(pair.new, new[status])
        yield from _headers(pair, before, after, here)
        yield from pair.content(
            _Side.RESPONSE, before.get("content", {}), after.get("content", {}), here
        )
        if not before.get("content") and after.get("content"):
            yield f"{here}: it has a body now"
    for status in new:
        if status not in old and not _is_refusal(status):
            yield f"{where} response {status}: this way to succeed is new"
    yield from _refusals(pair, old, new, where)


def _headers(pair: _Pair, old: Document, new: Document, where: str) -> Iterator[str]:
    after = new.get("headers", {})
    for name, header in old.get("headers", {}).items():
        if name not in after:
            yield f"{where}: the header {name} is gone"
            continue
        before, present = _resolved(pair.old, header), _resolved(pair.new, after[name])
        schemas = before.get("schema", {}), present.get("schema", {})
        yield from pair.schema(_Side.RESPONSE, *schemas, f"{where} header {name}")


def _refusals(pair: _Pair, old: Document, new: Document, where: str) -> Iterator[str]:
    """Refusals may come and go; what they look like stays."""
    for status in old.keys() & new.keys():
        if _is_refusal(status):
            before, after = _resolved(pair.old, old[status]), _resolved(pair.new, new[status])
            yield from _headers(pair, before, after, f"{where} response {status}")
            for media_type in before.get("content", {}).keys() - after.get("content", {}).keys():
                yield f"{where} response {status}: {media_type} is gone"
            for media_type, body in before.get("content", {}).items():
                if media_type in after.get("content", {}):
                    schemas = body.get("schema", {}), after["content"][media_type].get("schema", {})
                    here = f"{where} response {status} {media_type}"
                    yield from pair.schema(_Side.RESPONSE, *schemas, here)


def _is_refusal(status: str) -> bool:
    return status[0] in "45"


def _security(old: Any, new: Any, where: str) -> Iterator[str]:
    """Each way in has to lead in still, with no more scopes than before."""
    ways = new or [{}]
    for way in old or [{}]:
        if not any(_leads_in(way, other) for other in ways):
            yield f"{where}: what let a client in does not any more: {way or 'nothing'} -> {new}"


def _leads_in(held: Mapping[str, list[str]], asked: Mapping[str, list[str]]) -> bool:
    return all(name in held and set(asked[name]) <= set(held[name]) for name in asked)


def _resolved_list(document: Document, nodes: Any) -> list[Any]:
    return [_resolved(document, node) for node in nodes]


def _resolved(document: Document, node: Any) -> Any:
    while isinstance(node, dict) and "$ref" in node:
        target: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def may_break(released: str, present: str) -> bool:
    """Whether a version may break what an earlier one promised (Semantic Versioning).

    A new major version may; before 1.0.0 a new minor version may too.
    """
    old, new = _version(released), _version(present)
    leading = 2 if old[0] == 0 else 1
    return new[:leading] > old[:leading]


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def main() -> int:
    """Print what breaks clients of the last release; 1 when the version does not allow it."""
    releases = sorted(RELEASED.glob("*.json"), key=lambda path: _version(path.stem))
    if not releases:
        print(f"no contract has been released into {RELEASED.relative_to(ROOT)}")
        return 1
    released, present = (json.loads(path.read_bytes()) for path in (releases[-1], GENERATED))
    found = breaking_changes(released, present)
    if not found or may_break(released["info"]["version"], present["info"]["version"]):
        return 0
    print(f"this breaks clients of {releases[-1].relative_to(ROOT)}:")
    print("\n".join(f"  {line}" for line in found))
    print("undo it, or raise the version; CONTRIBUTING.md says how a release is made")
    return 1


if __name__ == "__main__":
    sys.exit(main())
