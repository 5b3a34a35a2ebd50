"""The `training` of a plan document: the optimizer, the types it keeps, what is sharded."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.models.dtypes import DType
from service.core.plans.training import MasterCopy, Optimizer, OptimizerSharding, Training
from service.formats.documents.fields import or_none

__all__ = ["TrainingDocument", "training_to_core"]


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


def training_to_core(document: TrainingDocument) -> Training:
    """As the plan states it, unchecked; what is left out stays open."""
    each = or_none(document.optimizer_state_dtypes)
    return Training(
        optimizer=document.optimizer,
        weight_dtype=or_none(document.weight_dtype),
        gradient_dtype=or_none(document.gradient_dtype),
        master_dtype=or_none(document.master_dtype),
        optimizer_state_dtype=or_none(document.optimizer_state_dtype),
        moment_dtypes=None if each is None else tuple(each),
        optimizer_sharding=or_none(document.optimizer_sharding) or OptimizerSharding.NONE,
    )
