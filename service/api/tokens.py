"""The tokens of the caller's own team. The command line makes those of any team."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from service.api.injection import InjectedAccess, InjectedServices
from service.api.schemas.documents import Page
from service.api.schemas.tokens import (
    NewTokenAnswer,
    TokenEntry,
    TokenRequest,
    new_token_answer,
    token_entry,
)
from service.app.access import NewToken, create_token, revoke_token, token_page
from service.app.idempotency import Answer, Record
from service.app.ports import Scope
from service.formats.documents.fields import or_none
from service.web import problem_types
from service.web.access import needs
from service.web.cursors import DEFAULT_LIMIT, Cursor, Limit, page_of, read_cursor
from service.web.idempotency import IDEMPOTENT, respond_once
from service.web.openapi import EXAMPLE, PROBLEMS
from service.web.responses import json_response

__all__ = ["token_routes"]

TokenId = FromPath[
    Annotated[
        str,
        Meta(
            max_length=100,
            description="The `id` of a token.",
            examples=["019c1f0a2b3c4d5e6f70"],
        ),
    ]
]


@post(
    "/v1/tokens",
    operation_id="create_token",
    summary="Make a token",
    tags=["tokens"],
    status_code=201,
    opt={
        **needs(Scope.ADMIN),
        **IDEMPOTENT,
        EXAMPLE: {"scopes": ["read", "write"], "name": "nightly-sweep"},
        PROBLEMS: (problem_types.SECRET_NOT_KEPT,),
    },
    responses={201: ResponseSpec(NewTokenAnswer, description="The token, shown this once")},
)
async def create(
    request: Request[Any, Any, Any],
    services: InjectedServices,
    access: InjectedAccess,
    data: JSONBody[TokenRequest],
) -> Response[bytes]:
    """A token of the caller's team, with any scopes. The first token ends open access.

    Its secret is stored nowhere, so an Idempotency-Key that is sent again is answered with 409,
    which names the token that was made.
    """

    async def create(record: Record[NewToken]) -> NewToken:
        new = await create_token(
            services,
            data.scopes,
            name=or_none(data.name),
            lifetime=timedelta(seconds=data.expires_in_seconds),
            record=record,
        )
        access.close()
        return new

    return await respond_once(request, services, data, create, _new_answer)


def _new_answer(new: NewToken) -> Answer:
    body = msgspec.json.encode(new_token_answer(new))
    return Answer(201, {"Cache-Control": "no-store"}, body, shown_once=f"the token {new.token.id}")


@get(
    "/v1/tokens",
    operation_id="list_tokens",
    summary="List the team's tokens",
    tags=["tokens"],
    opt=needs(Scope.ADMIN),
    responses={200: ResponseSpec(Page[TokenEntry], description="Newest first")},
)
async def list_tokens(
    request: Request[Any, Any, Any],
    services: InjectedServices,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[bytes]:
    """All tokens the team has ever had, expired and revoked ones included, without secrets."""
    tokens = await token_page(services, limit + 1, read_cursor(request, cursor, str))
    found, following = page_of(request, tokens, limit, lambda token: token.id)
    return json_response(Page.of([token_entry(token) for token in found], following))


@delete(
    "/v1/tokens/{id:str}",
    operation_id="revoke_token",
    summary="Revoke a token",
    tags=["tokens"],
    opt=needs(Scope.ADMIN),
    status_code=204,
    responses={204: ResponseSpec(None, description="Revoked, now or before")},
)
async def revoke(services: InjectedServices, access: InjectedAccess, id: TokenId) -> None:  # noqa: A002
    """From now on the token is refused, by other processes within a second. It stays in the list;
    revoking it again changes nothing.
    """
    await revoke_token(services, id)
    access.forget(id)


token_routes = (create, list_tokens, revoke)
