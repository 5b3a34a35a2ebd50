"""What a monitoring system reads: counters, gauges and histograms with closed sets of labels.

No label holds what a caller chose: not a path but the route's template, not a method but one of a
few, and no name, team or token. So the number of series is bounded by the code, whatever is sent.
"""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

__all__ = ["METRICS_MEDIA_TYPE", "Metrics"]

# What `generate_latest` writes: version 0.0.4 of the text format.
METRICS_MEDIA_TYPE = "text/plain"

# From a small answer to the longest pricing within the work budget.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self, version: str, model_version: str) -> None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = Info(
            "stagefare_build", "Version of the service and of its cost model", registry=registry
        )
        build.info({"version": version, "model_version": model_version})
        self._registry = registry
        self._requests = Counter(
            "stagefare_http_requests",
            "Requests that were answered; status is none where the caller went away before, "
            "method and route are unread where the server refused what had come",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "stagefare_http_request_duration_seconds",
            "From the request's head to the end of its answer",
            ("method", "route"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "stagefare_http_requests_in_flight",
            "Requests that are being answered",
            registry=registry,
        )
        self._estimates = Counter(
            "stagefare_estimates",
            "Estimates that were asked for, computed or answered from what is stored",
            ("answer",),
            registry=registry,
        )
        for answer in ("computed", "stored"):  # so that both start at 0 and rates are right
            self._estimates.labels(answer)

    def watch(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Show a number that is read when somebody asks, as the gauge `stagefare_<name>`."""
        gauge = Gauge(f"stagefare_{name}", description, registry=self._registry)
        gauge.set_function(read)

    def request_started(self) -> None:
        """Count a request as being answered."""
        self._in_flight.inc()

    def request_finished(
        self, method: str, route: str, status: int | None, duration_seconds: float
    ) -> None:
        """Count an answer; the caller keeps `method` and `route` to closed sets."""
        self._in_flight.dec()
        self._requests.labels(method, route, "none" if status is None else str(status)).inc()
        self._seconds.labels(method, route).observe(duration_seconds)

    def refused_unread(self, status: int) -> None:
        """Count an answer to what could not be read as a request, or was one connection too many.

        There is no method and no route that could be trusted, and no duration that would compare.
        """
        self._requests.labels("unread", "unread", str(status)).inc()

    def estimated(self, *, computed: bool) -> None:
        """Count an estimate."""
        self._estimates.labels("computed" if computed else "stored").inc()

    def exposition(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return generate_latest(self._registry)
