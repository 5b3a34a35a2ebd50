"""Who may do what: bearer tokens, the team each speaks for, and open access before the first one.

A token reads `stagefare_<id>_<secret>`. The id is visible everywhere. The secret, 256 random bits,
is shown once, when the token is made; only its SHA-256 hash is stored. No salt and no slow hash: so
many random bits can't be guessed, whatever a guess costs.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.app.errors import NotFound
from service.app.idempotency import Record, record_nothing
from service.app.ports import Clock, KnownToken, Scope, Token, TokenDirectory
from service.app.services import Services

__all__ = [
    "DEFAULT_LIFETIME",
    "LOCAL_TEAM",
    "MAX_LIFETIME",
    "MIN_LIFETIME",
    "Access",
    "NewToken",
    "Principal",
    "create_token",
    "revoke_token",
    "token_page",
]

# The team of everyone while there is no token, and of the command line.
LOCAL_TEAM = "local"

MIN_LIFETIME = timedelta(minutes=1)
DEFAULT_LIFETIME = timedelta(days=90)
MAX_LIFETIME = timedelta(days=366)

# How old what a running service knows of tokens may be: how long it takes to notice that another
# process has made the first one, or has revoked one.
FRESH_FOR = timedelta(seconds=1)
MAX_TOKENS_HELD = 1000

_TOKEN = re.compile(r"stagefare_(?P<id>[0-9a-f]{20})_(?P<secret>[0-9a-f]{64})")
_NO_HASH = bytes(hashlib.sha256().digest_size)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a request is from; `token_id` is None for open access."""

    team: str
    scopes: frozenset[Scope]
    token_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made, and its text, which nobody can learn again."""

    token: Token
    text: str


async def create_token(
    services: Services,
    scopes: Iterable[Scope],
    *,
    name: str | None = None,
    lifetime: timedelta = DEFAULT_LIFETIME,
    record: Record[NewToken] = record_nothing,
) -> NewToken:
    """Make a token of the services' team.

    `record` is called in the transaction that stores it.

    Raises ValueError without a scope, or for a lifetime outside `MIN_LIFETIME` to `MAX_LIFETIME`.
    """
    allowed = frozenset(scopes)
    if not allowed:
        raise ValueError("a token has at least one scope")
    if not MIN_LIFETIME <= lifetime <= MAX_LIFETIME:
        raise ValueError(f"a token lives from {MIN_LIFETIME} to {MAX_LIFETIME}; got {lifetime}")
    now = services.clock.now()
    token = Token(
        id=_new_id(now), name=name, scopes=allowed, created_at=now, expires_at=now + lifetime
    )
    secret = secrets.token_hex(32)
    new = NewToken(token, f"stagefare_{token.id}_{secret}")
    async with services.storage.writing() as unit:
        await unit.tokens.add(token, _hash(secret))
        await record(unit, new)
    return new


async def token_page(services: Services, limit: int, before: str | None = None) -> Sequence[Token]:
    """Tokens of the team, newest first, strictly before an id; expired and revoked ones too."""
    async with services.storage.reading() as unit:
        return await unit.tokens.page(limit, before)


async def revoke_token(services: Services, token_id: str) -> None:
    """Make a token of the team useless at once and for good; doing it again changes nothing.

    Raises `NotFound` when the team has no such token.
    """
    async with services.storage.writing() as unit:
        if not await unit.tokens.revoke(token_id, services.clock.now()):
            raise NotFound(f"no token {token_id[:100]!r} is stored")


class Access:
    """Decides whom a request is from, for as long as the service runs.

    While no team has ever made a token the service is open: whoever is near enough acts as the one
    local team, and may read and write. The first token is made on the command line: over HTTP
    anyone near enough could make it and lock all others out. Tokens are never removed from the
    database, so the first one ends open access for good, even when it is revoked later.

    A query for each request would cost as much as many a request. So an open service looks for a
    first token at most once a second, and one that is not open any more never again; and a token
    that was looked up is held for a second.
    """

    def __init__(self, directory: TokenDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._is_closed = False
        self._looked_at: datetime | None = None
        self._held: dict[str, tuple[KnownToken, datetime]] = {}

    async def is_open(self) -> bool:
        """Whether requests without a token are served."""
        now = self._clock.now()
        if not self._is_closed and not _is_fresh(self._looked_at, now):
            if not await self._directory.is_empty():
                self._is_closed = True
            self._looked_at = now
        return not self._is_closed

    def close(self) -> None:
        """End open access now: a token has just been made."""
        self._is_closed = True

    def forget(self, token_id: str) -> None:
        """Look a token up again: it has just been revoked."""
        self._held.pop(token_id, None)

    async def anonymous(self) -> Principal | None:
        """Whom a request without a token is from; None when it needs one."""
        if await self.is_open():
            return Principal(LOCAL_TEAM, frozenset({Scope.READ, Scope.WRITE}))
        return None

    async def bearer(self, text: str) -> Principal | None:
        """Whom a request with this token is from; None when it is not one that holds.

        The time it takes says whether an id is known, which is no secret, and nothing else.
        """
        parts = _TOKEN.fullmatch(text)
        if parts is None:
            return None
        known = await self._known(parts["id"])
        is_right = hmac.compare_digest(
            _hash(parts["secret"]), _NO_HASH if known is None else known.secret_hash
        )
        if known is None or not is_right or not _holds(known.token, self._clock.now()):
            return None
        return Principal(known.team, known.token.scopes, known.token.id)

    async def _known(self, token_id: str) -> KnownToken | None:
        now = self._clock.now()
        held, looked_at = self._held.get(token_id, (None, None))
        if held is not None and _is_fresh(looked_at, now):
            return held
        self._held.pop(token_id, None)
        known = await self._directory.find(token_id)
        if known is not None:
            self.close()
            self._held[token_id] = known, now
            while len(self._held) > MAX_TOKENS_HELD:
                del self._held[next(iter(self._held))]
        return known


def _is_fresh(looked_at: datetime | None, now: datetime) -> bool:
    # A clock that has been set back makes nothing fresh for long.
    return looked_at is not None and abs(now - looked_at) < FRESH_FOR


def _holds(token: Token, now: datetime) -> bool:
    return token.revoked_at is None and now < token.expires_at


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _new_id(now: datetime) -> str:
    """Milliseconds since 1970 and 32 random bits, so that ids sort by age."""
    milliseconds = int(now.timestamp() * 1000)
    return f"{milliseconds:012x}{secrets.token_hex(4)}"
