"""Wire types of what the costs of a stage rest on."""

from dataclasses import fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.api.schemas.ranges import mean_seconds
from service.core.amounts import SizeClasses
from service.core.plans.plan import CostSources
from service.core.profiles.measurement import NO_COMMUNICATION, Communication

__all__ = ["CostSourcesOut", "TensorParallelCommunication", "cost_sources_terms"]

_Ratio = Annotated[float, Meta(ge=0)]
_SecondsOrUnknown = Annotated[float, Meta(ge=0)] | msgspec.UnsetType


class TensorParallelCommunication(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Collectives among the tensor-parallel ranks of a stage; what is absent is unknown.

    What is exposed is contained in the seconds of the passes. What is hidden lies under their work
    and is added nowhere.
    """

    forward_exposed_seconds: _SecondsOrUnknown = msgspec.UNSET
    forward_hidden_seconds: _SecondsOrUnknown = msgspec.UNSET
    backward_exposed_seconds: _SecondsOrUnknown = msgspec.UNSET
    backward_hidden_seconds: _SecondsOrUnknown = msgspec.UNSET
    recompute_exposed_seconds: _SecondsOrUnknown = msgspec.UNSET
    recompute_hidden_seconds: _SecondsOrUnknown = msgspec.UNSET


class CostSourcesOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What the summed costs of a stage's layers rest on."""

    layers: Annotated[
        dict[str, int],
        Meta(
            description="How many layers have their times from each provenance.",
            examples=[{"measured": 11, "interpolated": 1}],
        ),
    ]
    tensor_parallel_communication: Annotated[
        TensorParallelCommunication | msgspec.UnsetType,
        Meta(description="Absent without tensor parallelism."),
    ] = msgspec.UNSET
    relative_deviation_at_most: Annotated[
        _Ratio | msgspec.UnsetType,
        Meta(
            description="Standard deviation of the stage's work over its mean if all layers "
            "deviate together; no correlation gives more. Absent unless every layer's is known.",
        ),
    ] = msgspec.UNSET
    relative_deviation_if_independent: Annotated[
        _Ratio | msgspec.UnsetType,
        Meta(description="The same if each layer deviates by itself."),
    ] = msgspec.UNSET
    relative_error: Annotated[
        _Ratio | msgspec.UnsetType,
        Meta(
            description="By how much of it the stage's work may be off because of layers that were "
            "not measured at this shape; 0 where all were. Absent where nobody knows."
        ),
    ] = msgspec.UNSET
    samples: Annotated[
        Annotated[int, Meta(ge=1)] | msgspec.UnsetType,
        Meta(description="The least number of runs that a layer's times are means of."),
    ] = msgspec.UNSET


def cost_sources_terms(sources: CostSources, sizes: SizeClasses) -> CostSourcesOut:
    """The wire form of what a stage's costs rest on; a mean where microbatches differ."""
    found = {
        "relative_deviation_at_most": sources.relative_deviation_at_most,
        "relative_deviation_if_independent": sources.relative_deviation_if_independent,
        "relative_error": sources.relative_error,
        "samples": sources.samples,
    }
    known: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
    if sources.communication != NO_COMMUNICATION:
        known["tensor_parallel_communication"] = TensorParallelCommunication(
            **{
                f"{field.name}_seconds": mean_seconds(sizes.spread(amount))
                for field in fields(Communication)
                if (amount := getattr(sources.communication, field.name)) is not None
            }
        )
    return CostSourcesOut(layers={origin.value: count for origin, count in sources.layers}, **known)
