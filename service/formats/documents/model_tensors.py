"""Tensors of the model document: what passes between layers, and what consumers expect of it."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.errors import Fault, FaultCode, Path
from service.core.models.dtypes import DType
from service.core.models.graph import Expectation, RecordedSize, Symbol, Tensor
from service.formats.documents.fields import (
    MAX_INTEGER,
    MAX_LAYERS,
    ByteCount,
    ElementName,
    PositiveCount,
    or_none,
    tuple_or_none,
)

__all__ = ["MAX_TENSORS", "ExpectationDocument", "TensorDocument", "tensor_to_core"]

MAX_TENSORS = 4 * MAX_LAYERS

ShapeEntry = (
    Annotated[int, Meta(ge=1, le=MAX_INTEGER, description="Elements of a fixed dimension")] | Symbol
)


class ExpectationDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What one consumer takes; what it leaves out it takes as it comes."""

    consumer: Annotated[ElementName, Meta(description="One of `consumers`")]
    shape: (
        Annotated[
            list[ShapeEntry],
            Meta(min_length=1, max_length=16, description="Elements per dimension"),
        ]
        | UnsetType
    ) = UNSET
    dtype: Annotated[DType, Meta(description="Type of an element")] | UnsetType = UNSET
    layout: (
        Annotated[ElementName, Meta(description="How its elements lie in memory")] | UnsetType
    ) = UNSET


class TensorDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What one layer hands to later ones: a `shape` with `dtype`, or recorded `bytes`."""

    name: Annotated[
        ElementName, Meta(description="Unique in the model", examples=["block.3.output"])
    ]
    producer: (
        Annotated[
            ElementName,
            Meta(
                description="The layer that makes it; absent for an input from outside, which the "
                "loader brings to each stage that consumes it",
                examples=["block.3"],
            ),
        ]
        | UnsetType
    ) = UNSET
    consumers: Annotated[
        list[ElementName],
        Meta(
            max_length=MAX_LAYERS,
            description="The layers that take it, all after the producer; a residual has a "
            "later consumer too. Empty for a result",
            examples=[["block.4", "block.5"]],
        ),
    ]
    shape: (
        Annotated[
            list[ShapeEntry],
            Meta(
                min_length=1,
                max_length=16,
                description="Elements per dimension; `microbatch` and `sequence` are the plan's",
                examples=[["sequence", "microbatch", 8192]],
            ),
        ]
        | UnsetType
    ) = UNSET
    bytes: (
        Annotated[
            ByteCount,
            Meta(
                description="Recorded size on one rank, where no shape is known. It holds at the "
                "recorded microbatch size only and is never scaled",
                examples=[205520896],
            ),
        ]
        | UnsetType
    ) = UNSET
    microbatch_size: (
        Annotated[
            PositiveCount,
            Meta(description="Samples per microbatch when `bytes` were recorded", examples=[64]),
        ]
        | UnsetType
    ) = UNSET
    sequence_length: (
        Annotated[
            PositiveCount,
            Meta(description="Tokens per sample when `bytes` were recorded", examples=[2048]),
        ]
        | UnsetType
    ) = UNSET
    dtype: (
        Annotated[DType, Meta(description="Type of an element", examples=["bf16"])] | UnsetType
    ) = UNSET
    layout: (
        Annotated[
            ElementName,
            Meta(
                description="How its elements lie in memory, in the field's words",
                examples=["row_major"],
            ),
        ]
        | UnsetType
    ) = UNSET
    expected: (
        Annotated[
            list[ExpectationDocument],
            Meta(
                max_length=MAX_LAYERS,
                description="What consumers say they take. A plan that cuts between producer and "
                "consumer is refused where they differ; on one stage a layer converts by itself",
            ),
        ]
        | UnsetType
    ) = UNSET
    requires_gradient: (
        Annotated[
            bool,
            Meta(
                description="Whether a gradient of it goes back. When absent: yes if a layer "
                "produces it and its elements are no integers",
                examples=[True],
            ),
        ]
        | UnsetType
    ) = UNSET
    gradient_dtype: (
        Annotated[
            DType,
            Meta(
                description="Type of an element of its gradient; that of the tensor when absent",
                examples=["fp32"],
            ),
        ]
        | UnsetType
    ) = UNSET


def tensor_to_core(document: TensorDocument, faults: list[Fault], path: Path) -> Tensor:
    """The tensor as the document has it; what is wrong with it is added to `faults`."""
    size = or_none(document.bytes)
    microbatch_size = or_none(document.microbatch_size)
    if size is not None and microbatch_size is None:
        detail = "`bytes` hold at one shape only: give the microbatch_size they were recorded at"
        faults.append(Fault(FaultCode.MISSING_FIELD, (*path, "microbatch_size"), detail))
    if size is None:
        for field in ("microbatch_size", "sequence_length"):
            if getattr(document, field) is not UNSET:
                detail = "belongs to recorded `bytes`; a `shape` takes it from the plan"
                faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, (*path, field), detail))
    return Tensor(
        name=document.name,
        producer=or_none(document.producer),
        consumers=tuple(document.consumers),
        shape=tuple_or_none(document.shape),
        recorded=None
        if size is None
        else RecordedSize(size, microbatch_size or 1, or_none(document.sequence_length)),
        dtype=or_none(document.dtype),
        layout=or_none(document.layout),
        expected=_expected(document, faults, path),
        requires_gradient=or_none(document.requires_gradient),
        gradient_dtype=or_none(document.gradient_dtype),
    )


def _expected(
    document: TensorDocument, faults: list[Fault], path: Path
) -> tuple[Expectation | None, ...]:
    """For each consumer what it says it takes; empty where none says anything."""
    said: dict[str, Expectation] = {}
    consumers = set(document.consumers)
    for index, each in enumerate(or_none(document.expected) or ()):
        here = (*path, "expected", index, "consumer")
        if each.consumer not in consumers:
            detail = f"{each.consumer!r} is none of the `consumers` of {document.name!r}"
            faults.append(Fault(FaultCode.UNKNOWN_NAME, here, detail))
        elif each.consumer in said:
            detail = f"{each.consumer!r} has said what it takes above; once is enough"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, here, detail))
        said[each.consumer] = Expectation(
            shape=tuple_or_none(each.shape),
            dtype=or_none(each.dtype),
            layout=or_none(each.layout),
        )
    return tuple(said.get(name) for name in document.consumers) if said else ()
