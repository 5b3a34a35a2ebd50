"""Clients of an application in this process."""

from typing import Any

import httpx
from litestar import Litestar

__all__ = ["client_of"]


def client_of(app: Litestar, token: str | None = None) -> httpx.AsyncClient:
    """A client on the loopback address, with a token if one is given."""
    asgi: Any = app
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=asgi, raise_app_exceptions=False),
        base_url="http://localhost",
        headers={} if token is None else {"Authorization": f"Bearer {token}"},
    )
