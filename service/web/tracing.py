"""Spans by OpenTelemetry, which comes with the extra `otel`.

The SDK is used directly: the ready-made middleware for ASGI puts the path and the query of each
request into its spans, and neither may leave this process (`service.web.telemetry`). The package is
imported only when spans are wanted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from service.web.trace_context import TraceParent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

__all__ = ["OpenTelemetrySpan", "OpenTelemetryTracing", "open_tracing"]


class OpenTelemetrySpan:
    """The open span of a request."""

    def __init__(self, span: "Span") -> None:
        self._span = span

    @property
    def trace_id(self) -> str:
        """In lower-case hexadecimal, as in a traceparent."""
        return f"{self._span.get_span_context().trace_id:032x}"

    def answered(self, method: str, route: str, status: int | None) -> None:
        """Name the span by its operation; attributes as the semantic conventions name them."""
        from opentelemetry.trace import StatusCode

        self._span.update_name(f"{method} {route}")
        self._span.set_attribute("http.request.method", method)
        self._span.set_attribute("http.route", route)
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
        if status is None or status >= 500:
            self._span.set_status(StatusCode.ERROR)


class OpenTelemetryTracing:
    """The `Tracing` of a provider, which it also closes."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("stagefare")

    @contextmanager
    def request(self, parent: TraceParent | None) -> Iterator[OpenTelemetrySpan]:
        """A span around one request, below the caller's or else the first of a new trace."""
        from opentelemetry.context import Context
        from opentelemetry.trace import (
            NonRecordingSpan,
            SpanContext,
            SpanKind,
            TraceFlags,
            set_span_in_context,
        )

        context = Context()
        if parent is not None:
            remote = SpanContext(
                int(parent.trace_id, 16),
                int(parent.span_id, 16),
                is_remote=True,
                trace_flags=TraceFlags(int(parent.is_sampled)),
            )
            context = set_span_in_context(NonRecordingSpan(remote), context)
        # The message of an exception may hold what a caller wrote; the log has it, the trace not.
        with self._tracer.start_as_current_span(
            "request",
            context,
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield OpenTelemetrySpan(span)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A span around a part of the work, below the one that is open in this context."""
        with self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        ):
            yield

    def close(self) -> None:
        """Send what is left, and end the sender's thread."""
        self._provider.shutdown()


def open_tracing() -> OpenTelemetryTracing:
    """Spans sent by OTLP over HTTP, as the OTEL_ variables of the environment say.

    Raises ModuleNotFoundError without the extra.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = Resource({"service.name": "stagefare"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetryTracing(provider)
