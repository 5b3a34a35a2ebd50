"""What handlers are given."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from service.app.access import Access
from service.app.services import Services
from service.web.metrics import Metrics

__all__ = [
    "DEPENDENCIES",
    "InjectedAccess",
    "InjectedMetrics",
    "InjectedReadiness",
    "InjectedServices",
    "Readiness",
]


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the service still waits for, in words; nothing means that it is ready."""

    missing: Callable[[], Awaitable[tuple[str, ...]]]


# A handler asks for `services: InjectedServices`: those of the team the request is from. A route
# that is open to everybody has no team, and so no services.
InjectedServices = NamedDependency[SkipValidation[Services]]
InjectedAccess = NamedDependency[SkipValidation[Access]]
InjectedReadiness = NamedDependency[SkipValidation[Readiness]]
InjectedMetrics = NamedDependency[SkipValidation[Metrics]]

# The names of all of them, as the application provides them.
DEPENDENCIES = ("services", "access", "readiness", "metrics")
