"""Wire types of what an iteration makes of its devices."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.estimates.efficiency import Efficiency
from service.core.models.dtypes import DType
from service.formats.documents.fields import or_unset

__all__ = ["EfficiencyTerms", "TrainingRunOut", "efficiency_terms"]

Unset = msgspec.UnsetType
_SECONDS_PER_HOUR = 3600


class TrainingRunOut(msgspec.Struct, kw_only=True, frozen=True):
    """All iterations for the plan's tokens, each at the predicted time of one."""

    tokens: Annotated[int, Meta(ge=1, description="As the plan says.")]
    iterations: Annotated[int, Meta(ge=1, description="The last one may be of fewer tokens.")]
    seconds: Annotated[float, Meta(ge=0)]
    device_hours: Annotated[
        float, Meta(ge=0, description="Hours of one device: those of all of them together.")
    ]


class EfficiencyTerms(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What an iteration costs and makes of its devices, from its predicted time."""

    devices: Annotated[int, Meta(ge=1, description="One for each rank.")]
    device_hours_per_iteration: Annotated[
        float | Unset, Meta(description="Absent where the time of an iteration is unknown.")
    ] = msgspec.UNSET
    tokens_per_second_per_device: Annotated[
        float | Unset, Meta(description="Absent when the batch or the sequence has no size.")
    ] = msgspec.UNSET
    model_flops: Annotated[
        float | Unset,
        Meta(
            description="Floating-point operations that the arithmetic of the model needs in an "
            "iteration, over all replicas; absent where that is unknown."
        ),
    ] = msgspec.UNSET
    hardware_flops: Annotated[
        float | Unset, Meta(description="With those that are computed again.")
    ] = msgspec.UNSET
    compute_dtype: Annotated[
        DType | Unset,
        Meta(description="The training's weight_dtype, else the type of all weights of the model."),
    ] = msgspec.UNSET
    peak_flops_per_second: Annotated[
        float | Unset,
        Meta(description="Of all devices with that type; absent where one's is unknown."),
    ] = msgspec.UNSET
    model_flops_utilisation_ratio: Annotated[
        float | Unset,
        Meta(
            description="Model FLOPs over what the devices do at their peak meanwhile. Above 1 the "
            "times of the stages are quicker than their devices allow."
        ),
    ] = msgspec.UNSET
    hardware_flops_utilisation_ratio: float | Unset = msgspec.UNSET
    run: Annotated[
        TrainingRunOut | Unset, Meta(description="Absent without `training.tokens`.")
    ] = msgspec.UNSET


def efficiency_terms(efficiency: Efficiency) -> EfficiencyTerms:
    """The wire form of what an iteration makes of its devices."""
    flops, run = efficiency.flops, efficiency.run
    seconds = efficiency.device_seconds
    return EfficiencyTerms(
        devices=efficiency.devices,
        device_hours_per_iteration=msgspec.UNSET
        if seconds is None
        else seconds / _SECONDS_PER_HOUR,
        tokens_per_second_per_device=or_unset(efficiency.tokens_per_second_per_device),
        model_flops=msgspec.UNSET if flops is None else float(flops.model),
        hardware_flops=msgspec.UNSET if flops is None else float(flops.hardware),
        compute_dtype=efficiency.compute_dtype or msgspec.UNSET,
        peak_flops_per_second=or_unset(efficiency.peak_flops),
        model_flops_utilisation_ratio=or_unset(
            None if flops is None else efficiency.utilisation(flops.model)
        ),
        hardware_flops_utilisation_ratio=or_unset(
            None if flops is None else efficiency.utilisation(flops.hardware)
        ),
        run=msgspec.UNSET
        if run is None
        else TrainingRunOut(
            tokens=run.tokens,
            iterations=run.iterations,
            seconds=run.seconds,
            device_hours=run.device_seconds / _SECONDS_PER_HOUR,
        ),
    )
