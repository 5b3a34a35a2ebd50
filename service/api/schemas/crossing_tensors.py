"""Wire types of the tensors that cross a boundary: what both of its ends have to agree on."""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.ranges import BytesRanges, bytes_ranges, same_bytes
from service.core.amounts import Amount, Spread
from service.core.models.dtypes import DType
from service.core.models.graph import Symbol
from service.core.plans.plan import CrossingTensor
from service.formats.documents.fields import or_unset

__all__ = ["TensorOut", "tensor_terms"]

Unset = msgspec.UnsetType


class TensorOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A tensor that crosses, in bytes one rank sends for one microbatch."""

    name: Annotated[str, Meta(description="Unique in the model, and the same at both ends.")]
    producer: Annotated[str, Meta(description="The layer that makes it.")]
    produced_stage: Annotated[int, Meta(ge=0)]
    consumers: Annotated[
        list[str],
        Meta(
            description="The layers of the target stage that take it; empty where that stage "
            "passes it on."
        ),
    ]
    consumed_stages: Annotated[
        list[int], Meta(description="The stages it is carried across this boundary for.")
    ]
    shape: Annotated[
        list[int] | Unset,
        Meta(
            description="Elements in each dimension of what one rank sends. Absent where the model "
            "has recorded bytes alone, and where microbatches differ."
        ),
    ] = msgspec.UNSET
    shape_symbols: Annotated[
        list[int | Symbol] | Unset,
        Meta(description="The shape as the model has it, before ranks share it."),
    ] = msgspec.UNSET
    dtype: Annotated[
        DType | Unset, Meta(description="Type of an element; absent where nobody says.")
    ] = msgspec.UNSET
    layout: Annotated[
        str | Unset, Meta(description="How elements lie in memory; absent where nobody says.")
    ] = msgspec.UNSET
    forward_bytes: Annotated[int | Unset, Meta(description="Absent when microbatches differ.")] = (
        msgspec.UNSET
    )
    gradient_dtype: Annotated[
        DType | Unset,
        Meta(description="Type of an element of its gradient; absent where it has none."),
    ] = msgspec.UNSET
    backward_bytes: Annotated[
        int | Unset,
        Meta(description="Of its gradient; 0 when it needs none. Absent when microbatches differ."),
    ] = msgspec.UNSET
    bytes_ranges: BytesRanges = msgspec.UNSET


def tensor_terms(
    crossing: CrossingTensor, spread: Callable[[Amount | None], Spread | None]
) -> TensorOut:
    """The wire form of a crossing tensor; `spread` is that of an amount over the microbatches."""
    tensor = crossing.tensor
    forward, backward = spread(crossing.forward_bytes), spread(crossing.backward_bytes)
    returns = tensor.has_gradient and crossing.backward_bytes != 0
    return TensorOut(
        name=tensor.name,
        producer=crossing.producer,
        produced_stage=crossing.produced_stage,
        consumers=list(crossing.consumers),
        consumed_stages=list(crossing.consumed_stages),
        shape=msgspec.UNSET if crossing.shape is None else list(crossing.shape),
        shape_symbols=msgspec.UNSET if tensor.shape is None else list(tensor.shape),
        dtype=or_unset(tensor.dtype),
        layout=or_unset(tensor.layout),
        forward_bytes=same_bytes(forward),
        gradient_dtype=or_unset(tensor.gradient_dtype or tensor.dtype)
        if returns
        else msgspec.UNSET,
        backward_bytes=same_bytes(backward),
        bytes_ranges=bytes_ranges(forward_bytes=forward, backward_bytes=backward),
    )
