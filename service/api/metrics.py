"""What a monitoring system scrapes."""

from litestar import Response, get

from service.api.injection import InjectedMetrics
from service.web.metrics import METRICS_MEDIA_TYPE
from service.web.rate_limit import UNLIMITED
from service.web.telemetry import QUIET

__all__ = ["get_metrics"]


@get(
    "/metrics",
    operation_id="get_metrics",
    summary="Read the metrics of this process",
    media_type=METRICS_MEDIA_TYPE,
    tags=["service"],
    opt={**QUIET, **UNLIMITED},
    sync_to_thread=False,
)
def get_metrics(metrics: InjectedMetrics) -> Response[bytes]:
    """In the text format of Prometheus, for all teams together and since the process began.

    Labels are a method, the template of a route and a status, never a name, a path or a team. Any
    token with the scope `read` will do; give the scraper one of a team that stores nothing.
    """
    return Response(metrics.exposition(), media_type=f"{METRICS_MEDIA_TYPE}; version=0.0.4")
