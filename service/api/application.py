"""An application with all routes, and what they run on, which is given after that.

Looking at all routes takes far longer than all else that an application is made of.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from litestar import Litestar, Request
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Guard

from service.api.contract import get_openapi
from service.api.injection import Readiness
from service.api.routes import route_handlers
from service.app.access import Access, Principal
from service.app.holdings import Holdings
from service.app.services import Services
from service.web.application import Application
from service.web.guards import refuse_bad_parameters, refuse_unacceptable
from service.web.metrics import Metrics
from service.web.problems import EXCEPTION_HANDLERS
from service.web.strict_json import StrictRequest
from service.web.telemetry import Telemetry

__all__ = ["MAX_BODY_BYTES", "Parts", "give_parts", "routed_application"]

MAX_BODY_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Parts:
    """What routes run on: all of an application that is not the same for each.

    `guards` look at a request first, `lifespan` is what is open while the application serves.
    """

    services: Callable[[Request[Any, Principal, Any]], Services]
    access: Access
    readiness: Readiness
    metrics: Metrics
    guards: tuple[Guard, ...]
    lifespan: Callable[[], AbstractAsyncContextManager[None]]
    telemetry: Telemetry
    holdings: Holdings


def give_parts(app: Application, parts: Parts) -> None:
    """Let the application run on these, also one that has ended."""
    app.state.parts = parts
    app.is_stopping = False
    app.telemetry = parts.telemetry
    app.holdings = parts.holdings


def routed_application() -> Application:
    """One that still needs its parts (`give_parts`)."""
    return Application(
        route_handlers=[*route_handlers(), get_openapi],
        dependencies={
            "services": Provide(_services, sync_to_thread=False),
            "access": Provide(_access, sync_to_thread=False),
            "readiness": Provide(_readiness, sync_to_thread=False),
            "metrics": Provide(_metrics, sync_to_thread=False),
        },
        exception_handlers=EXCEPTION_HANDLERS,
        guards=[_guard, refuse_bad_parameters, refuse_unacceptable],
        lifespan=[_lifespan],
        request_class=StrictRequest,
        request_max_body_size=MAX_BODY_BYTES,
        # The service serves its committed document; the framework's logging would log bodies.
        openapi_config=None,
        logging_config=None,
    )


def _parts(app: Litestar) -> Parts:
    parts: Parts = app.state.parts
    return parts


@asynccontextmanager
async def _lifespan(app: Litestar) -> AsyncIterator[None]:
    async with _parts(app).lifespan():
        yield


async def _guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    for guard in _parts(connection.app).guards:
        looked = guard(connection, handler)
        if looked is not None:
            await looked


def _services(request: Request[Any, Principal, Any]) -> Services:
    return _parts(request.app).services(request)


def _access(request: Request[Any, Any, Any]) -> Access:
    return _parts(request.app).access


def _readiness(request: Request[Any, Any, Any]) -> Readiness:
    return _parts(request.app).readiness


def _metrics(request: Request[Any, Any, Any]) -> Metrics:
    return _parts(request.app).metrics
