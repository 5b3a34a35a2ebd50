"""What each stage of a partition holds of a model's weights and buffers."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.models.graph import Model

__all__ = ["StageWeights", "stage_weights"]


@dataclass(frozen=True, slots=True)
class StageWeights:
    """Weights and buffers of one stage, before tensor-parallel ranks share them.

    `parameter_count` has each weight of the stage once, however many of its layers use it.
    `tied_parameter_count` is the part of it that more than one layer of the model uses, and
    `copied_parameter_count` the part that an earlier stage holds too: without it the counts of all
    stages sum to that of the model. Bytes are those of weights and buffers themselves, in their own
    types; a buffer belongs to its layer alone, so it is never shared.
    """

    parameter_count: int
    tied_parameter_count: int
    copied_parameter_count: int
    parameter_bytes: int
    buffer_count: int
    buffer_bytes: int


def stage_weights(model: Model, stage_of_layer: Sequence[int]) -> tuple[StageWeights, ...]:
    """One entry a stage; `stage_of_layer` gives the stage of each layer position."""
    stages = range(max(stage_of_layer) + 1)
    counts, tied, copied, sizes = ([0 for _ in stages] for _ in range(4))
    for weight in model.weights:
        for place, stage in enumerate(weight.stages(stage_of_layer)):
            counts[stage] += weight.count
            sizes[stage] += weight.count * weight.dtype.bytes_per_element
            tied[stage] += weight.count * (len(weight.layers) > 1)
            copied[stage] += weight.count * (place > 0)
    buffers, buffer_sizes = ([0 for _ in stages] for _ in range(2))
    for layer, stage in zip(model.layers, stage_of_layer, strict=True):
        for buffer in layer.buffers:
            buffers[stage] += buffer.count
            buffer_sizes[stage] += buffer.count * buffer.dtype.bytes_per_element
    columns = zip(counts, tied, copied, sizes, buffers, buffer_sizes, strict=True)
    return tuple(StageWeights(*column) for column in columns)
