"""What the content of stored documents means. A revision never changes, so it is kept."""

from functools import lru_cache

import msgspec

from service.core.models.graph import Model
from service.core.moe.routing import Routing
from service.core.profiles.profile import Profile
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.documents import routing as routings

__all__ = ["model_of", "profile_of", "routing_of"]


@lru_cache(maxsize=16)
def model_of(content: bytes) -> Model:
    """The model of a stored document."""
    return models.to_core(msgspec.json.decode(content, type=models.ModelDocument))


@lru_cache(maxsize=16)
def profile_of(content: bytes) -> Profile:
    """The profile of a stored document."""
    return profiles.to_core(msgspec.json.decode(content, type=profiles.ProfileDocument))


@lru_cache(maxsize=16)
def routing_of(content: bytes) -> Routing:
    """The routing of a stored document."""
    return routings.to_core(msgspec.json.decode(content, type=routings.RoutingDocument))
