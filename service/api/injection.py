"""What handlers are given."""

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from service.app.services import Services

__all__ = ["InjectedServices"]

# A handler asks for `services: InjectedServices`.
InjectedServices = NamedDependency[SkipValidation[Services]]
