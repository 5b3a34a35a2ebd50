"""One request as those who run the service see it: a log line, metrics, and a span.

Nothing here repeats what a caller wrote. A path holds the names of a team's documents, a query and
a header may hold a secret, and logs, metrics and traces are read by more people than the team. The
route's template says which operation it was; the request's id, which the caller has too, says which
request.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from structlog.contextvars import bound_contextvars

from service.web.metrics import Metrics
from service.web.trace_context import TraceParent

__all__ = ["QUIET", "Exchange", "RequestSpan", "Telemetry", "Tracing"]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNMATCHED = "unmatched"

# In the `opt` of a route that is asked every few seconds: logged only when debugging or on failure.
_QUIET = "quiet"
QUIET: Mapping[str, Any] = {_QUIET: True}

logger = logging.getLogger("stagefare.requests")


@dataclass(slots=True)
class Exchange:
    """A request and its answer, filled in while it is served.

    `route` is the template of its path, None where no route fits; `team` that of its token. Sizes
    are those of the bodies. `status` stays None when the caller goes away before an answer.
    """

    method: str
    request_id: str
    trace_id: str | None = None
    route: str | None = None
    is_quiet: bool = False
    team: str | None = None
    status: int | None = None
    request_bytes: int = 0
    response_bytes: int = 0

    def routed(self, scope: Mapping[str, Any]) -> None:
        """Take what the router and the guards have found out about the request."""
        self.route = scope.get("path_template")
        if self.route is not None:
            self.is_quiet = bool(scope["route_handler"].opt.get(_QUIET))
        self.team = getattr(scope.get("auth"), "team", None)


class RequestSpan(Protocol):
    """The span of a request while it is open."""

    @property
    def trace_id(self) -> str: ...

    def answered(self, method: str, route: str, status: int | None) -> None:
        """Say how it ended."""


class Tracing(Protocol):
    """Makes spans."""

    def request(self, parent: TraceParent | None) -> AbstractContextManager[RequestSpan]:
        """A span around one request, below the caller's."""

    def span(self, name: str) -> AbstractContextManager[None]:
        """A span around a part of the work, below the one that is open."""


class Telemetry:
    """Logs, counts and traces. Without metrics nothing is counted, without tracing none traced."""

    def __init__(self, metrics: Metrics | None = None, tracing: Tracing | None = None) -> None:
        self._metrics = metrics
        self._tracing = tracing

    @contextmanager
    def exchange(
        self, method: str, request_id: str, parent: TraceParent | None
    ) -> Iterator[Exchange]:
        """Around one request: what is logged in between carries its id."""
        began = time.perf_counter()
        known_method = method if method in _METHODS else "other"
        exchange = Exchange(known_method, request_id, None if parent is None else parent.trace_id)
        if self._metrics is not None:
            self._metrics.request_started()
        spanned = nullcontext() if self._tracing is None else self._tracing.request(parent)
        with spanned as span:
            if span is not None:
                exchange.trace_id = span.trace_id
            context = {"request_id": request_id}
            if exchange.trace_id is not None:
                context["trace_id"] = exchange.trace_id
            with bound_contextvars(**context):
                try:
                    yield exchange
                finally:
                    self._finish(exchange, time.perf_counter() - began, span)

    def estimated(self, *, computed: bool) -> None:
        """Count an estimate, computed now or answered from what is stored."""
        if self._metrics is not None:
            self._metrics.estimated(computed=computed)

    def refused_unread(self, status: int) -> None:
        """Count a refusal of what was no request yet."""
        if self._metrics is not None:
            self._metrics.refused_unread(status)

    def span(self, name: str) -> AbstractContextManager[None]:
        """A span around a part of the work."""
        return nullcontext() if self._tracing is None else self._tracing.span(name)

    def _finish(
        self, exchange: Exchange, duration_seconds: float, span: RequestSpan | None
    ) -> None:
        route = exchange.route or _UNMATCHED
        if span is not None:
            span.answered(exchange.method, route, exchange.status)
        if self._metrics is not None:
            self._metrics.request_finished(
                exchange.method, route, exchange.status, duration_seconds
            )
        if exchange.status is not None and exchange.status >= 500:
            level = logging.WARNING
        else:
            level = logging.DEBUG if exchange.is_quiet else logging.INFO
        if not logger.isEnabledFor(level):
            return
        fields: dict[str, Any] = {
            "method": exchange.method,
            "route": route,
            "duration_seconds": round(duration_seconds, 6),
            "request_bytes": exchange.request_bytes,
            "response_bytes": exchange.response_bytes,
        }
        if exchange.status is not None:
            fields["status"] = exchange.status
        if exchange.team is not None:
            fields["team"] = exchange.team
        event = "request" if exchange.status is not None else "request abandoned by its caller"
        logger.log(level, event, extra=fields)
