"""Wire types of the fluid queue."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import StatementOut

__all__ = ["BacklogAnswer", "BacklogRequest"]

_Amount = Annotated[float, Meta(ge=0, le=1e15)]


class BacklogRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A queue as a fluid: a level that rises by arrivals and falls by service."""

    initial_backlog: Annotated[
        _Amount, Meta(description="Items waiting at the start.", examples=[4.0])
    ]
    arrival_rate: Annotated[_Amount, Meta(description="Items per second.", examples=[4.0])]
    service_rate: Annotated[_Amount, Meta(description="Items per second.", examples=[3.0])]
    step_seconds: Annotated[
        float, Meta(gt=0, le=1e9, description="Length of one step.", examples=[0.5])
    ]
    steps: Annotated[int, Meta(ge=1, le=10_000, examples=[2])]


class BacklogAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """The backlog after each step; never below zero."""

    backlog: Annotated[list[float], Meta(description="Items waiting after each step.")]
    final_backlog: Annotated[float, Meta(ge=0)]
    assumptions: list[StatementOut]
    not_represented: list[StatementOut]
