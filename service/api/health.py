"""Whether the process lives, and whether it can answer."""

from litestar import get
from msgspec import Struct

from service.api.injection import InjectedServices
from service.app.errors import Unavailable

__all__ = ["Health", "get_liveness", "get_readiness"]


class Health(Struct, kw_only=True, frozen=True):
    """The state of the service in one word."""

    status: str


@get(
    "/healthz",
    operation_id="get_liveness",
    summary="Is the process alive",
    tags=["service"],
    sync_to_thread=False,
)
def get_liveness() -> Health:
    """Answers as long as the process serves requests; looks at nothing else."""
    return Health(status="alive")


@get("/readyz", operation_id="get_readiness", summary="Is the service ready", tags=["service"])
async def get_readiness(services: InjectedServices) -> Health:
    """Ready when the database answers at the newest schema and the kernels are compiled."""
    missing = await services.missing()
    if missing:
        raise Unavailable("not ready: " + "; ".join(missing))
    return Health(status="ready")
