"""The generated document says what the routes do, and is the same each time."""

from typing import Annotated, Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from litestar import Litestar, Response, get, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta, Struct
from openapi_spec_validator import validate

from service.web.access import OPEN
from service.web.openapi import (
    CONDITIONAL,
    EXAMPLE,
    MULTIPART,
    PROBLEMS,
    ApiInfo,
    build_document,
    render,
)
from service.web.problem_types import PROBLEM_TYPES, SUPERSEDED


class Hop(Struct, tag_field="kind", tag="hop", forbid_unknown_fields=True):
    lanes: Annotated[int, Meta(ge=1, le=9, description="Cables")]


class Leap(Struct, tag_field="kind", tag="leap", forbid_unknown_fields=True):
    label: str


class Route(Struct, forbid_unknown_fields=True):
    """A way through the cluster."""

    hops: Annotated[list[Hop | Leap], Meta(max_length=10)]
    seconds: Annotated[list[Annotated[float, Meta(gt=0)]], Meta(max_length=3)] = []


@put(
    "/routes/{name:str}",
    operation_id="put_route",
    summary="Store a route",
    tags=["routes"],
    opt={**CONDITIONAL, EXAMPLE: {"hops": []}},
    responses={201: ResponseSpec(Route, description="Stored")},
)
async def put_route(name: FromPath[str], data: JSONBody[Route]) -> Response[bytes]:
    """Stores it.

    At length.
    """
    return Response(name.encode() + str(data).encode())


@get("/routes/{name:str}", operation_id="get_route", opt=CONDITIONAL, sync_to_thread=False)
def get_route(
    name: FromPath[Annotated[str, Meta(description="Its name", max_length=9)]],
    limit: FromQuery[Annotated[int, Meta(ge=1, le=5, description="Most hops")]] = 5,
    kind: FromQuery[Annotated[str, Meta(max_length=4)] | None] = None,
) -> Route:
    """Reads it."""
    return Route([])


@get("/drawing.svg", operation_id="draw", media_type="image/svg+xml", sync_to_thread=False)
def draw() -> bytes:
    """Draws it."""
    return b""


def document(*handlers: Any) -> dict[str, Any]:
    app = Litestar(list(handlers or (put_route, get_route, draw)), openapi_config=None)
    info = ApiInfo("Routes", "1", "All routes", {"routes": "Ways"})
    return msgspec.json.decode(render(build_document(app, info)), type=dict[str, Any])


def test_the_document_is_valid_and_the_same_each_time() -> None:
    validate(document())
    assert document() == document()


def test_bodies_have_all_their_constraints() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["Route"]["additionalProperties"] is False
    assert schemas["Route"]["properties"]["seconds"]["items"] == {
        "type": "number",
        "exclusiveMinimum": 0,
    }
    hops = schemas["Route"]["properties"]["hops"]["items"]
    assert hops["discriminator"]["propertyName"] == "kind"
    assert schemas["Hop"]["properties"]["lanes"]["description"] == "Cables"


def test_an_operation_is_described_by_its_handler() -> None:
    operation = document()["paths"]["/routes/{name}"]["put"]
    assert operation["operationId"] == "put_route"
    assert operation["summary"] == "Store a route"
    assert operation["description"] == "Stores it.\n\nAt length."
    assert operation["requestBody"]["content"]["application/json"] == {
        "schema": {"$ref": "#/components/schemas/Route"},
        "example": {"hops": []},
    }
    assert [(p["name"], p["in"]) for p in operation["parameters"]] == [
        ("name", "path"),
        ("If-Match", "header"),
        ("If-None-Match", "header"),
    ]
    assert sorted(operation["responses"]) == [
        "201",
        "400",
        "401",
        "403",
        "406",
        "412",
        "413",
        "415",
        "421",
        "422",
        "429",
        "500",
        "503",
    ]
    headers = operation["responses"]["201"]["headers"]
    assert headers.keys() == {"X-Request-ID", "ETag", "RateLimit", "RateLimit-Policy"}
    refused = document()["components"]["responses"]["rate-limit-exceeded"]["headers"]
    assert refused.keys() == {"X-Request-ID", "Retry-After"}


def test_parameters_have_their_constraints_and_descriptions() -> None:
    operation = document()["paths"]["/routes/{name}"]["get"]
    assert operation["parameters"][:3] == [
        {
            "name": "name",
            "in": "path",
            "required": True,
            "description": "Its name",
            "schema": {"type": "string", "maxLength": 9},
        },
        {
            "name": "limit",
            "in": "query",
            "required": False,
            "description": "Most hops",
            "schema": {"type": "integer", "minimum": 1, "maximum": 5, "default": 5},
        },
        {
            "name": "kind",
            "in": "query",
            "required": False,
            "schema": {"type": "string", "maxLength": 4},
        },
    ]
    assert operation["responses"]["200"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Route"}}
    }
    assert {"304", "404"} <= set(operation["responses"])


def test_an_operation_names_the_scope_it_needs() -> None:
    @get("/health", operation_id="health", opt=OPEN, sync_to_thread=False)
    def health() -> None: ...

    built = document(get_route, put_route, health)
    assert built["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    paths = built["paths"]
    assert paths["/routes/{name}"]["get"]["security"] == [{"bearer": ["read"]}]
    assert paths["/routes/{name}"]["put"]["security"] == [{"bearer": ["write"]}]
    assert paths["/health"]["get"]["security"] == []
    refused = paths["/routes/{name}"]["get"]["responses"]
    assert refused["401"] == {"$ref": "#/components/responses/unauthenticated"}
    assert "WWW-Authenticate" in built["components"]["responses"]["unauthenticated"]["headers"]
    assert "insufficient-scope" in refused["403"]["description"]
    assert not {"401", "403", "421"} & set(paths["/health"]["get"]["responses"])


def test_other_formats_have_their_media_type() -> None:
    responses = document()["paths"]["/drawing.svg"]["get"]["responses"]
    assert list(responses["200"]["content"]) == ["image/svg+xml"]


def test_a_form_is_a_file_with_its_fields() -> None:
    @post("/routes/imports", operation_id="import_route", opt={MULTIPART: Route})
    async def import_route() -> None:
        """Reads it from a file."""

    built = document(import_route)
    validate(built)
    body = built["paths"]["/routes/imports"]["post"]["requestBody"]["content"]
    schema = {**body["multipart/form-data"]["schema"], "components": built["components"]}
    form = Draft202012Validator(schema)
    assert form.is_valid({"file": "1 -- 2", "hops": []})
    assert not form.is_valid({"hops": []})
    assert not form.is_valid({"file": "1 -- 2", "hops": [], "more": 1})


def test_a_route_names_the_problems_that_do_not_follow_from_what_it_reads() -> None:
    @get("/old", operation_id="old", opt={PROBLEMS: (SUPERSEDED,)}, sync_to_thread=False)
    def old() -> None:
        """Reads it."""

    responses = document(old)["paths"]["/old"]["get"]["responses"]
    assert responses["409"] == {"$ref": "#/components/responses/superseded"}


def test_every_refusal_is_a_problem_document() -> None:
    built = document()
    for operations in built["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    slug = response.get("$ref", "").rpartition("/")[2]
                    named = built["components"]["responses"].get(slug, response)
                    assert list(named["content"]) == ["application/problem+json"]
    assert list(built["components"]["responses"]) == [t.slug for t in PROBLEM_TYPES]
    code = built["components"]["schemas"]["ProblemError"]["properties"]["code"]
    assert {"unknown_field", "indivisible"} <= set(code["enum"])


def test_operations_have_ids_of_their_own() -> None:
    @get("/a", operation_id="draw", sync_to_thread=False)
    def draw_again() -> None: ...

    @get("/b", sync_to_thread=False)
    def unnamed() -> None: ...

    with pytest.raises(ValueError, match=r"GET /drawing\.svg needs an operation_id of its own"):
        document(draw, draw_again)
    with pytest.raises(ValueError, match="GET /b needs an operation_id of its own"):
        document(unnamed)
