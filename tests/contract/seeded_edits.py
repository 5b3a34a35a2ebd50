"""Edits of the present contract: some break clients written against it, some do not."""

from collections.abc import Callable
from typing import Any

__all__ = ["BREAKING", "HARMLESS"]

Document = dict[str, Any]
Edit = Callable[[Document], object]


def operation(document: Document, path: str, method: str) -> Document:
    found: Document = document["paths"][path][method]
    return found


def schema(document: Document, name: str) -> Document:
    found: Document = document["components"]["schemas"][name]
    return found


def field(document: Document, name: str, field_name: str) -> Document:
    found: Document = schema(document, name)["properties"][field_name]
    return found


def parameter(document: Document, path: str, method: str, name: str) -> Document:
    parameters = operation(document, path, method)["parameters"]
    found: Document = next(p for p in parameters if p["name"] == name)
    return found


def without(mapping: Document, *names: str) -> None:
    for name in names:
        del mapping[name]


def require(document: Document, name: str, field_name: str) -> Document:
    required = schema(document, name)
    required.setdefault("required", []).append(field_name)
    return required


def add_parameter(document: Document, **fields: Any) -> None:
    added = {"name": "window", "schema": {"type": "string"}, **fields}
    operation(document, "/v1/plans", "get")["parameters"].append(added)


LIST, ONE, TOKENS, BACKLOG = "/v1/plans", "/v1/plans/{name}", "/v1/tokens", "/v1/queues/backlog"
OK = "application/json"


def answer(document: Document, path: str, method: str, status: str) -> Document:
    found: Document = operation(document, path, method)["responses"][status]
    return found


def _rename_status(document: Document) -> None:
    responses = operation(document, TOKENS, "post")["responses"]
    responses["202"] = responses.pop("201")


def _rename_media_type(document: Document) -> None:
    content = answer(document, "/healthz", "get", "200")["content"]
    content["application/vnd.health+json"] = content.pop(OK)


def _drop_variant(document: Document) -> None:
    """One kind of fabric less can be sent."""
    fabric = field(document, "TopologyDocument", "fabric")
    union = fabric if "anyOf" in fabric else schema(document, fabric["$ref"].rpartition("/")[2])
    union["anyOf"].pop()


# name -> (edit, what the finding has to speak of)
BREAKING: dict[str, tuple[Edit, str]] = {
    "path removed": (lambda d: without(d["paths"], BACKLOG), f"POST {BACKLOG}"),
    "method removed": (lambda d: without(d["paths"][ONE], "delete"), f"DELETE {ONE}"),
    "operation id changed": (
        lambda d: operation(d, LIST, "get").update(operationId="plans"),
        "operation id",
    ),
    "parameter removed": (
        lambda d: operation(d, LIST, "get")["parameters"].remove(
            parameter(d, LIST, "get", "limit")
        ),
        "limit: it is gone",
    ),
    "query parameter added, required": (
        lambda d: add_parameter(d, **{"in": "query", "required": True}),
        "window: it is new and required",
    ),
    "header added, required": (
        lambda d: add_parameter(d, **{"in": "header", "required": True}),
        "header parameter window: it is new and required",
    ),
    "parameter made required": (
        lambda d: parameter(d, LIST, "get", "limit").update(required=True),
        "limit: it is required now",
    ),
    "parameter's maximum lowered": (
        lambda d: parameter(d, LIST, "get", "limit")["schema"].update(maximum=100),
        "upper bound 200 -> 100",
    ),
    "parameter's pattern changed": (
        lambda d: parameter(d, ONE, "get", "name")["schema"].update(pattern="^[a-z]+$"),
        "name: pattern",
    ),
    "parameter's type changed": (
        lambda d: parameter(d, LIST, "get", "limit").update(schema={"type": "string"}),
        "limit: type integer -> string",
    ),
    "parameter's default changed": (
        lambda d: parameter(d, LIST, "get", "limit").update(
            schema={**parameter(d, LIST, "get", "limit")["schema"], "default": 10}
        ),
        "default",
    ),
    "field of a request made required": (
        lambda d: require(d, "TokenRequest", "name"),
        ".name: the field is required now",
    ),
    "field of a request added, required": (
        lambda d: (
            schema(d, "TokenRequest")["properties"].update(reason={"type": "string"}),
            require(d, "TokenRequest", "reason"),
        ),
        ".reason: the field is required now",
    ),
    "field of a request removed": (
        lambda d: without(schema(d, "TokenRequest")["properties"], "name"),
        ".name: the field is gone",
    ),
    "field of a request gets another type": (
        lambda d: field(d, "BacklogRequest", "steps").update(type="string"),
        ".steps: type integer -> string",
    ),
    "number of a request narrowed to integers": (
        lambda d: field(d, "BacklogRequest", "arrival_rate").update(type="integer"),
        ".arrival_rate: type number -> integer",
    ),
    "value of a request's enumeration removed": (
        lambda d: without_value(d, "write"),
        "values that are gone",
    ),
    "list of a request shortened": (
        lambda d: field(d, "TopologyDocument", "hosts").update(maxItems=1),
        "maxItems",
    ),
    "text of a request shortened": (
        lambda d: field(d, "TokenRequest", "name").update(maxLength=3),
        "maxLength",
    ),
    "lower bound of a request raised": (
        lambda d: field(d, "BacklogRequest", "steps").update(minimum=2),
        "lower bound",
    ),
    "inclusive bound of a request made exclusive": (
        lambda d: (
            field(d, "BacklogRequest", "arrival_rate").pop("minimum"),
            field(d, "BacklogRequest", "arrival_rate").update(exclusiveMinimum=0),
        ),
        ".arrival_rate: lower bound",
    ),
    "map of a request closed": (
        lambda d: field(d, "PlanRequest", "patch").update(additionalProperties=False),
        "further fields allowed -> refused",
    ),
    "variant of a request's union removed": (_drop_variant, "kind"),
    "media type of a request removed": (
        lambda d: without(operation(d, TOKENS, "post")["requestBody"]["content"], OK),
        f"{OK} is gone",
    ),
    "request takes no body any more": (
        lambda d: without(operation(d, TOKENS, "post"), "requestBody"),
        "no body is taken",
    ),
    "success gets another status": (_rename_status, "response 201: it is gone"),
    "second way to succeed": (
        lambda d: operation(d, LIST, "get")["responses"].update({"206": {"description": ""}}),
        "response 206: this way to succeed is new",
    ),
    "media type of an answer changed": (_rename_media_type, f"{OK} is gone"),
    "media type of a refusal changed": (
        lambda d: d["components"]["responses"]["not-found"].update(content={}),
        "application/problem+json is gone",
    ),
    "header of an answer removed": (
        lambda d: without(answer(d, ONE, "get", "200")["headers"], "ETag"),
        "the header ETag is gone",
    ),
    "type of an answer's header changed": (
        lambda d: d["components"]["headers"]["ETag"].update(schema={"type": "integer"}),
        "header ETag: type string -> integer",
    ),
    "header of a refusal removed": (
        lambda d: without(answer(d, LIST, "get", "429")["headers"], "Retry-After"),
        "the header Retry-After is gone",
    ),
    "field of an answer removed": (
        lambda d: without(schema(d, "Ready")["properties"], "access"),
        ".access: the field is gone",
    ),
    "field of an answer made optional": (
        lambda d: schema(d, "Ready")["required"].remove("access"),
        ".access: the field may be absent now",
    ),
    "field of an answer gets another type": (
        lambda d: field(d, "Ready", "status").update(type="integer"),
        ".status: type string -> integer",
    ),
    "field of an answer may be null": (
        lambda d: field(d, "Ready", "status").update(type=["string", "null"]),
        ".status: type string -> null",
    ),
    "enumeration of an answer widened": (
        lambda d: field(d, "Ready", "access")["enum"].append("closed"),
        "new values",
    ),
    "bound of an answer lifted": (
        lambda d: field(d, "ProblemDocument", "status").update(maximum=999),
        "upper bound 599 -> 999",
    ),
    "scope added": (
        lambda d: operation(d, LIST, "get").update(security=[{"bearer": ["read", "admin"]}]),
        f"GET {LIST}: what let a client in",
    ),
    "open operation closed": (
        lambda d: operation(d, "/healthz", "get").update(security=[{"bearer": ["read"]}]),
        "GET /healthz: what let a client in",
    ),
    "another way to authenticate": (
        lambda d: d["components"]["securitySchemes"]["bearer"].update(scheme="basic"),
        "security scheme bearer",
    ),
    "server moved": (lambda d: d["servers"][0].update(url="/api"), "server /"),
}

HARMLESS: dict[str, Edit] = {
    "operation added": lambda d: d["paths"].update({"/v1/more": d["paths"][LIST]}),
    "optional parameter added": lambda d: add_parameter(d, **{"in": "query", "required": False}),
    "optional field of a request added": lambda d: schema(d, "TokenRequest")["properties"].update(
        reason={"type": "string"}
    ),
    "field of an answer added": lambda d: schema(d, "Ready")["properties"].update(
        since={"type": "string"}
    ),
    "field of an answer made required": lambda d: (
        require(d, "RevisionEntry", "extra")
        or schema(d, "RevisionEntry")["properties"].update(extra={"type": "string"})
    ),
    "maximum of a request raised": lambda d: parameter(d, LIST, "get", "limit")["schema"].update(
        maximum=1000
    ),
    "maximum of an answer lowered": lambda d: field(d, "ProblemDocument", "status").update(
        maximum=598
    ),
    "value of a request's enumeration added": lambda d: scopes_of_request(d).append("audit"),
    "value of an answer's enumeration removed": lambda d: field(d, "Ready", "access")["enum"].pop(),
    "field of a request made optional": lambda d: schema(d, "BacklogRequest")["required"].remove(
        "steps"
    ),
    "integer of a request widened to numbers": lambda d: field(d, "BacklogRequest", "steps").update(
        type="number"
    ),
    "code of a refusal added": lambda d: field(d, "ProblemError", "code")["enum"].append("new"),
    "status of a refusal added": lambda d: operation(d, LIST, "get")["responses"].update(
        {"418": {"description": "short and stout"}}
    ),
    "status of a refusal removed": lambda d: without(operation(d, LIST, "get")["responses"], "406"),
    "texts and examples changed": lambda d: (
        operation(d, LIST, "get").update(summary="x", description="y"),
        field(d, "BacklogRequest", "steps").update(description="z", examples=[3]),
    ),
    "operation opened": lambda d: operation(d, LIST, "get").update(security=[]),
    "schema renamed": lambda d: rename_schema(d, "TokenRequest", "RequestForToken"),
    "header of an answer added": lambda d: answer(d, LIST, "get", "200")["headers"].update(
        Age={"schema": {"type": "integer"}}
    ),
    "media type of a request added": lambda d: operation(d, TOKENS, "post")["requestBody"][
        "content"
    ].update({"application/cbor": {}}),
    "server added": lambda d: d["servers"].append({"url": "https://stagefare.example"}),
}


def scopes_of_request(document: Document) -> list[str]:
    """The scopes a token may be asked for, in a schema that no answer uses."""
    items = field(document, "TokenRequest", "scopes")["items"]
    enumeration: list[str]
    if "$ref" in items:
        named = schema(document, items["$ref"].rpartition("/")[2])
        items.clear()
        items.update({**named, "enum": list(named["enum"])})
    enumeration = items["enum"]
    return enumeration


def without_value(document: Document, value: str) -> None:
    scopes_of_request(document).remove(value)


def rename_schema(document: Document, old: str, new: str) -> None:
    document["components"]["schemas"][new] = document["components"]["schemas"].pop(old)

    def follow(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("$ref") == f"#/components/schemas/{old}":
                node["$ref"] = f"#/components/schemas/{new}"
            for inner in node.values():
                follow(inner)
        elif isinstance(node, list):
            for inner in node:
                follow(inner)

    follow(document)
