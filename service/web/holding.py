"""What a request holds while it is served (`service.app.holdings`), from its body on.

The outermost layer puts the account of all requests into the state of each, and gives back what
this one held: the work once the answer is known, the bytes when the request has ended, however it
ends.
"""

from collections.abc import MutableMapping
from typing import Any

from litestar.connection import ASGIConnection

from service.app.apart import SMALL
from service.app.holdings import Holding, Holdings
from service.web.rate_limit import caller_of

__all__ = ["admit", "answered", "ended", "expect_body", "hold_preparation", "holding_of"]

Connection = ASGIConnection[Any, Any, Any, Any]
State = MutableMapping[str, Any]

_HOLDINGS = "holdings"
_HOLDING = "holding"


def admit(state: State, holdings: Holdings) -> None:
    """Let a request with this state hold something."""
    state[_HOLDINGS] = holdings


def holding_of(connection: Connection) -> Holding:
    """That of a request, for the caller that the access guard has found."""
    state = connection.scope["state"]
    if _HOLDING not in state:
        holdings: Holdings = state[_HOLDINGS]
        state[_HOLDING] = holdings.holding(caller_of(connection))
    holding: Holding = state[_HOLDING]
    return holding


def expect_body(connection: Connection, size_bytes: int) -> None:
    """Hold a body that is announced, unless it or its preparation would be too much already.

    Raises `TooManyAtOnce` or `Overloaded`.
    """
    holding = holding_of(connection)
    holding.hold_body(size_bytes)
    if size_bytes > SMALL:
        holding.expect_preparation(size_bytes)


def hold_preparation(connection: Connection, size_bytes: int) -> None:
    """Hold the work of reading a body that has come; small ones are read at once.

    Raises `TooManyAtOnce` or `Overloaded`.
    """
    if size_bytes > SMALL:
        holding_of(connection).hold_preparation(size_bytes)


def answered(state: State) -> None:
    """Give back the work: a caller may take its time to read the answer."""
    if _HOLDING in state:
        state[_HOLDING].hold_work(0)


def ended(state: State) -> None:
    """Give back all of it."""
    if _HOLDING in state:
        state[_HOLDING].release()
