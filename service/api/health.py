"""Whether the process lives, and whether it can answer."""

from typing import Annotated, Literal

from litestar import get
from msgspec import Meta, Struct

from service.api.injection import InjectedAccess, InjectedReadiness
from service.app.errors import Unavailable
from service.web.access import OPEN
from service.web.telemetry import QUIET

__all__ = ["Health", "Ready", "get_liveness", "get_readiness"]


class Health(Struct, kw_only=True, frozen=True):
    """The state of the service in one word."""

    status: str


class Ready(Struct, kw_only=True, frozen=True):
    """A service that can answer, and whom."""

    status: str
    access: Annotated[
        Literal["open", "tokens"],
        Meta(
            description="`open`: no token has been made, and everyone on the service's machine is "
            "the team `local`. `tokens`: each request needs one."
        ),
    ]


@get(
    "/healthz",
    operation_id="get_liveness",
    summary="Is the process alive",
    tags=["service"],
    opt={**OPEN, **QUIET},
    sync_to_thread=False,
)
def get_liveness() -> Health:
    """Answers as long as the process serves requests; looks at nothing else."""
    return Health(status="alive")


@get(
    "/readyz",
    operation_id="get_readiness",
    summary="Is the service ready",
    tags=["service"],
    opt={**OPEN, **QUIET},
)
async def get_readiness(readiness: InjectedReadiness, access: InjectedAccess) -> Ready:
    """Ready when the database answers at the newest schema and the kernels are compiled."""
    missing = await readiness.missing()
    if missing:
        raise Unavailable("not ready: " + "; ".join(missing))
    return Ready(status="ready", access="open" if await access.is_open() else "tokens")
