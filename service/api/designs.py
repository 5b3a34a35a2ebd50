"""Reference designs: what a topology document can name, to look at before one is written."""

from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath
from msgspec import Meta

from service.api.schemas.designs import Design, Designs, design_entry, whole_design
from service.app.apart import USUAL, run_apart
from service.app.errors import NotFound
from service.formats.reference_designs import references
from service.web.openapi import CONDITIONAL
from service.web.responses import tagged_response

__all__ = ["design_routes"]

AnyRequest = Request[Any, Any, Any]
_DesignName = FromPath[
    Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$(?!\n)",
            description="A name of the list.",
            examples=["dgx-h100"],
        ),
    ]
]


@get(
    "/v1/designs",
    operation_id="list_designs",
    summary="List the reference designs",
    tags=["topologies"],
    opt=CONDITIONAL,
    responses={200: ResponseSpec(Designs, description="Hosts first, then networks")},
)
async def list_designs(request: AnyRequest) -> Response[bytes]:
    """Hosts that a topology can name as a `design`, and the networks it can have by an example of
    each: what is in them, and the nominal and effective rates of their links.
    """
    return await _answer(request, None)


@get(
    "/v1/designs/{design:str}",
    operation_id="get_design",
    summary="Read a reference design",
    tags=["topologies"],
    opt=CONDITIONAL,
    responses={200: ResponseSpec(Design, description="With a document to start from")},
)
async def get_design(request: AnyRequest, design: _DesignName) -> Response[bytes]:
    """A design with all its parts, and a topology document that uses it."""
    return await _answer(request, design)


async def _answer(request: AnyRequest, name: str | None) -> Response[bytes]:
    # The first time all of them are expanded.
    content, tag = await run_apart(USUAL, _write, name)
    return tagged_response(request, tag, lambda: msgspec.Raw(content))


@lru_cache(maxsize=64)
def _write(name: str | None) -> tuple[bytes, str]:
    """The answer and its tag. Raises `NotFound`, which is not kept."""
    known = {reference.name: reference for reference in references()}
    if name is None:
        content = msgspec.json.encode(Designs(items=[design_entry(one) for one in known.values()]))
    elif name in known:
        content = msgspec.json.encode(whole_design(known[name]))
    else:
        raise NotFound(f"no design is named {name[:100]!r}; known are {', '.join(known)}")
    return content, sha256(content).hexdigest()[:32]


design_routes = (list_designs, get_design)
