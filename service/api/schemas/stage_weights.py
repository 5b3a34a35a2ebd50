"""Wire types of what each stage holds of a model's weights and buffers."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.plans.plan import ResolvedPlan

__all__ = ["StageWeightsOut", "stage_weights_terms"]

Count = Annotated[int, Meta(ge=0)]


class StageWeightsOut(msgspec.Struct, kw_only=True, frozen=True):
    """Weights and buffers of the layers of one stage, before tensor-parallel ranks share them."""

    parameter_count: Annotated[
        Count,
        Meta(description="Trained elements; each weight once, however many layers use it."),
    ]
    tied_parameter_count: Annotated[
        Count, Meta(description="Of these in weights that more than one layer of the model uses.")
    ]
    copied_parameter_count: Annotated[
        Count,
        Meta(
            description="Of these in weights that an earlier stage holds too. Without them the "
            "counts of all stages sum to the parameters of the model."
        ),
    ]
    parameter_bytes: Annotated[
        Count, Meta(description="Of the weights in their own types; no gradient, no optimizer.")
    ]
    buffer_count: Annotated[Count, Meta(description="Elements of state that is not trained.")]
    buffer_bytes: Count


def stage_weights_terms(resolved: ResolvedPlan, stage: int) -> StageWeightsOut | msgspec.UnsetType:
    """The wire form of what a stage holds; unset where no model says."""
    if resolved.weights is None:
        return msgspec.UNSET
    held = resolved.weights[stage]
    return StageWeightsOut(
        parameter_count=held.parameter_count,
        tied_parameter_count=held.tied_parameter_count,
        copied_parameter_count=held.copied_parameter_count,
        parameter_bytes=held.parameter_bytes,
        buffer_count=held.buffer_count,
        buffer_bytes=held.buffer_bytes,
    )
