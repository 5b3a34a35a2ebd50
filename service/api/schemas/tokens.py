"""Wire types of tokens."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.app.access import DEFAULT_LIFETIME, MAX_LIFETIME, MIN_LIFETIME, NewToken
from service.app.ports import Scope, Token
from service.formats.documents.fields import or_unset

__all__ = ["NewTokenAnswer", "TokenEntry", "TokenRequest", "new_token_answer", "token_entry"]

Id = Annotated[
    str,
    Meta(
        description="The part of a token that is no secret; later tokens have greater ids",
        examples=["019c1f0a2b3c4d5e6f70"],
    ),
]
Name = Annotated[str, Meta(description="What the token is for, if that was said")]
Scopes = Annotated[list[Scope], Meta(description="What the token allows")]
CreatedAt = Annotated[datetime, Meta(tz=True, description="When the token was made, UTC")]
ExpiresAt = Annotated[datetime, Meta(tz=True, description="From when on it is refused, UTC")]
RevokedAt = Annotated[
    datetime, Meta(tz=True, description="When it was revoked, UTC; absent if it was not")
]


class TokenRequest(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A token to be made."""

    scopes: Annotated[
        list[Scope],
        Meta(
            min_length=1,
            max_length=len(Scope),
            description="What the token is to allow. `read`: documents, calculations, estimates. "
            "`write`: to store, import and archive documents. `admin`: the team's tokens. A scope "
            "holds no other one.",
        ),
    ]
    name: (
        Annotated[
            str,
            Meta(
                pattern=r"^[a-z][a-z0-9-]{0,62}$(?!\n)",
                description="What the token is for; names need not differ.",
                examples=["nightly-sweep"],
            ),
        ]
        | UnsetType
    ) = UNSET
    expires_in_seconds: Annotated[
        int,
        Meta(
            ge=int(MIN_LIFETIME.total_seconds()),
            le=int(MAX_LIFETIME.total_seconds()),
            description="How long the token holds; 90 days unless said otherwise, a year at most.",
        ),
    ] = int(DEFAULT_LIFETIME.total_seconds())


class TokenEntry(Struct, kw_only=True, frozen=True):
    """A token in a list, without its secret."""

    id: Id
    name: Name | UnsetType = UNSET
    scopes: Scopes
    created_at: CreatedAt
    expires_at: ExpiresAt
    revoked_at: RevokedAt | UnsetType = UNSET


class NewTokenAnswer(Struct, kw_only=True, frozen=True):
    """A token just made; the only answer that holds its secret."""

    token: Annotated[
        str, Meta(description="The token itself: send it as `Authorization: Bearer <token>`")
    ]
    id: Id
    name: Name | UnsetType = UNSET
    scopes: Scopes
    created_at: CreatedAt
    expires_at: ExpiresAt


def token_entry(token: Token) -> TokenEntry:
    """A token as an entry of a list."""
    return TokenEntry(
        id=token.id,
        name=or_unset(token.name),
        scopes=_in_order(token.scopes),
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=or_unset(token.revoked_at),
    )


def new_token_answer(new: NewToken) -> NewTokenAnswer:
    """A token just made, with its secret."""
    return NewTokenAnswer(
        token=new.text,
        id=new.token.id,
        name=or_unset(new.token.name),
        scopes=_in_order(new.token.scopes),
        created_at=new.token.created_at,
        expires_at=new.token.expires_at,
    )


def _in_order(scopes: frozenset[Scope]) -> list[Scope]:
    return [scope for scope in Scope if scope in scopes]
