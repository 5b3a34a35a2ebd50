"""The `training` of a plan document: the optimizer, the types it keeps, what is sharded."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.models.dtypes import DType
from service.core.plans.gradient_reduction import (
    GradientReduction,
    ReductionAlgorithm,
    ReductionOverlap,
)
from service.core.plans.training import MasterCopy, Optimizer, OptimizerSharding, Training
from service.formats.documents.fields import (
    MAX_INTEGER,
    MAX_STAGES,
    PositiveCount,
    Seconds,
    each_or_none,
    or_none,
    tuple_or_none,
)

__all__ = ["GradientReductionDocument", "TrainingDocument", "training_to_core"]

Several = Meta(min_length=1, max_length=MAX_STAGES, description="One number for each")
SecondsByPart = Seconds | Annotated[list[Seconds], Several]


class GradientReductionDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How the ranks that hold the same weights add up their gradients, once an iteration."""

    algorithm: (
        Annotated[
            ReductionAlgorithm,
            Meta(
                description="ring and tree (two binary trees) are all-reduces. sharded is a "
                "reduce-scatter, and after the optimizer's step an all-gather of weights, both as "
                "rings. When absent sharded with optimizer_sharding, and else ring"
            ),
        ]
        | UnsetType
    ) = UNSET
    overlap: (
        Annotated[
            ReductionOverlap,
            Meta(
                description="When the reduction of a stage begins: none is after the last "
                "operation of its ranks, stages (when absent) as soon as its own gradients are "
                "complete, buckets part by part along the backward of its last microbatch"
            ),
        ]
        | UnsetType
    ) = UNSET
    bucket_bytes: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_INTEGER,
                description="Gradients of a rank that are reduced together, with overlap buckets",
                examples=[100000000],
                extra_json_schema={"x-unit": "bytes"},
            ),
        ]
        | UnsetType
    ) = UNSET
    seconds: (
        Annotated[
            SecondsByPart,
            Meta(
                description="What the reduction of a stage takes, measured or otherwise known, in "
                "place of an algorithm; one number for all stages, or one for each",
                examples=[0.004],
            ),
        ]
        | UnsetType
    ) = UNSET


class TrainingDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How weights are trained: what is kept of each parameter beside it, and over whom it lies."""

    optimizer: Annotated[
        Optimizer,
        Meta(
            description="adam, adamw and lamb keep two numbers of each parameter, adagrad, lion, "
            "momentum and rmsprop one, sgd none",
            examples=["adam"],
        ),
    ]
    weight_dtype: (
        Annotated[
            DType,
            Meta(
                description="Of the weights that forward and backward compute with; as the model "
                "says when absent, and needed where stages state their parameters themselves",
                examples=["bf16"],
            ),
        ]
        | UnsetType
    ) = UNSET
    gradient_dtype: (
        Annotated[
            DType,
            Meta(
                description="In which gradients are kept and reduced; that of the weights when "
                "absent",
                examples=["fp32"],
            ),
        ]
        | UnsetType
    ) = UNSET
    master_dtype: (
        Annotated[
            MasterCopy,
            Meta(
                description="Of the copy of the weights that the optimizer changes; none where it "
                "changes the weights themselves. When absent fp32 where weights take fewer than "
                "4 bytes, and else none",
                examples=["fp32"],
            ),
        ]
        | UnsetType
    ) = UNSET
    optimizer_state_dtype: (
        Annotated[
            DType,
            Meta(
                description="Of the numbers that the optimizer keeps; when absent that of the "
                "weights it changes",
                examples=["fp32"],
            ),
        ]
        | UnsetType
    ) = UNSET
    optimizer_state_dtypes: (
        Annotated[
            list[DType],
            Meta(
                max_length=2,
                description="One for each of them, in place of optimizer_state_dtype: first and "
                "second moment of adam",
                examples=[["bf16", "fp32"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    optimizer_sharding: (
        Annotated[
            OptimizerSharding,
            Meta(
                description="What the ranks that hold the same weights split among them: "
                "optimizer (ZeRO-1, distributed optimizer) the master copy and the optimizer's "
                "numbers, gradients (ZeRO-2) these and gradients, parameters (ZeRO-3, FSDP) all. "
                "none when absent",
                examples=["optimizer"],
            ),
        ]
        | UnsetType
    ) = UNSET

    gradient_reduction: (
        Annotated[
            GradientReductionDocument,
            Meta(description="How gradients are added up among ranks with the same weights"),
        ]
        | UnsetType
    ) = UNSET
    optimizer_step_seconds: (
        Annotated[
            SecondsByPart,
            Meta(
                description="What the optimizer's step takes on a rank; one number for all, or one "
                "for each pipeline rank. When absent it is computed from the bytes it reads and "
                "writes, where the device's memory_bytes_per_second is known",
                examples=[0.002],
            ),
        ]
        | UnsetType
    ) = UNSET

    tokens: (
        Annotated[
            PositiveCount,
            Meta(
                description="That are trained on in all, so that answers tell how many iterations "
                "and device-hours that takes",
                examples=[300000000000],
            ),
        ]
        | UnsetType
    ) = UNSET


def training_to_core(document: TrainingDocument) -> Training:
    """As the plan states it, unchecked; what is left out stays open."""
    return Training(
        optimizer=document.optimizer,
        weight_dtype=or_none(document.weight_dtype),
        gradient_dtype=or_none(document.gradient_dtype),
        master_dtype=or_none(document.master_dtype),
        optimizer_state_dtype=or_none(document.optimizer_state_dtype),
        moment_dtypes=tuple_or_none(document.optimizer_state_dtypes),
        optimizer_sharding=or_none(document.optimizer_sharding) or OptimizerSharding.NONE,
        gradient_reduction=_reduction(or_none(document.gradient_reduction)),
        optimizer_step_seconds=each_or_none(document.optimizer_step_seconds),
        tokens=or_none(document.tokens),
    )


def _reduction(document: GradientReductionDocument | None) -> GradientReduction | None:
    if document is None:
        return None
    return GradientReduction(
        algorithm=or_none(document.algorithm),
        overlap=or_none(document.overlap) or ReductionOverlap.STAGES,
        bucket_bytes=or_none(document.bucket_bytes),
        seconds=each_or_none(document.seconds),
    )
