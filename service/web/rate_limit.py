"""How many requests a minute one caller may send, and the header fields that say so.

A bucket for each caller holds up to a minute's requests and fills evenly. So a burst of a whole
minute is served, and after that one request for each that the rate allows. A bucket is one number,
the moment at which it is full again; one that is full need not be remembered.

The fields are those of draft-ietf-httpapi-ratelimit-headers, from its eighth version on.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Guard

from service.app.access import Principal
from service.app.ports import Clock
from service.web import problem_types
from service.web.problems import Problem

__all__ = ["UNLIMITED", "RateLimiter", "Standing", "caller_of", "is_limited", "rate_limit_guard"]

Connection = ASGIConnection[Any, Any, Any, Any]

_UNLIMITED = "unlimited"
# In the `opt` of a route that is asked by machines that must not be turned away.
UNLIMITED: Mapping[str, Any] = {_UNLIMITED: True}

WINDOW_SECONDS = 60
_WINDOW_MICROSECONDS = WINDOW_SECONDS * 10**6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The callers remembered at a time. Beyond it the one not seen for longest is forgotten, and has a
# full bucket again.
MAX_CALLERS = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a caller stands after a request; `wait_seconds` is 0 when the request may go on."""

    limit: int
    remaining: int
    full_in_seconds: int
    wait_seconds: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """The fields of every answer."""
        return {
            "RateLimit-Policy": f'"default";q={self.limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"default";r={self.remaining};t={self.full_in_seconds}',
        }


class RateLimiter:
    """Counts the requests of each caller, in this process."""

    def __init__(
        self, requests_per_minute: int, clock: Clock, max_callers: int = MAX_CALLERS
    ) -> None:
        self._limit = requests_per_minute
        self._clock = clock
        self._max_callers = max_callers
        # Times are microseconds since 1970 times the limit. In this unit a request costs a window
        # whatever the limit, and all sums are exact.
        self._window = _WINDOW_MICROSECONDS * requests_per_minute
        self._full_at: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        """Callers remembered."""
        return len(self._full_at)

    def take(self, caller: str) -> Standing:
        """Count a request of the caller, unless it is one too many."""
        now = (self._clock.now() - _EPOCH) // timedelta(microseconds=1) * self._limit
        # A clock that was set back leaves nobody waiting for longer than a bucket takes to fill.
        full_at = min(max(self._full_at.get(caller, now), now), now + self._window)
        after = full_at + _WINDOW_MICROSECONDS
        left = now + self._window - after
        if left < 0:
            self._remember(caller, full_at, now)
            return Standing(self._limit, 0, self._seconds(full_at - now), self._seconds(-left))
        self._remember(caller, after, now)
        return Standing(self._limit, left // _WINDOW_MICROSECONDS, self._seconds(after - now))

    def _seconds(self, time: int) -> int:
        return -(-time // (self._limit * 10**6))

    def _remember(self, caller: str, full_at: int, now: int) -> None:
        self._full_at[caller] = full_at
        self._full_at.move_to_end(caller)
        # Two at most for one that comes: those who have stopped asking go, in whatever number.
        for _ in range(2):
            oldest = next(iter(self._full_at))
            if self._full_at[oldest] > now and len(self._full_at) <= self._max_callers:
                return
            del self._full_at[oldest]


def caller_of(connection: Connection) -> str:
    """Who a request let in by the access guard is from: a token, or an address while open."""
    principal: Principal | None = connection.scope.get("auth")
    if principal is not None and principal.token_id is not None:
        return principal.token_id
    return "" if connection.client is None else connection.client.host


def is_limited(handler: BaseRouteHandler) -> bool:
    """Whether requests to a handler are counted, if it is not open to everybody."""
    return not handler.opt.get(_UNLIMITED)


def rate_limit_guard(limiter: RateLimiter) -> Guard:
    """The guard that counts a request, after the access guard has found out whom it is from.

    It leaves the header fields in the state of the request. Raises `Problem` (429).
    """

    async def refuse_hasty(connection: Connection, handler: BaseRouteHandler) -> None:
        if connection.scope.get("auth") is None or not is_limited(handler):
            return
        standing = limiter.take(caller_of(connection))
        connection.scope["state"]["rate_limit"] = standing.headers
        if standing.wait_seconds:
            raise Problem(
                problem_types.RATE_LIMIT_EXCEEDED,
                f"more than {standing.limit} requests a minute; the next one is served in "
                f"{standing.wait_seconds} s",
                headers={"Retry-After": str(standing.wait_seconds)},
            )

    return refuse_hasty
