"""The `contract` of a plan document: what of the training two plans must share to be alike."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.moe.overflow import OverflowPolicy
from service.core.plans.contract import Contract, LossScaling, WeightUpdate
from service.formats.documents.fields import Ratio, or_none

__all__ = ["ContractDocument", "contract_to_core"]

Wording = Annotated[
    str,
    Meta(
        pattern=r"^[^\u0000\n\r]+$(?!\n)",
        min_length=1,
        max_length=255,
        description="One line, compared as it stands",
    ),
]


class ContractDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What the plan states of its training beyond cost. It changes no number of an estimate.

    Plans are compared with one another only where their contracts agree. Batch sizes, sequence
    lengths, precision, the model and when weights change follow from the rest of the plan.
    """

    weight_update: (
        Annotated[
            WeightUpdate,
            Meta(
                description="When weights change. It follows from the schedule, and is checked "
                "against it where it stands here: none without a backward, per_global_batch after "
                "the drain, per_global_batch_delayed for pipedream_2bw, per_microbatch for "
                "pipedream",
                examples=["per_global_batch"],
            ),
        ]
        | UnsetType
    ) = UNSET
    loss_scaling: (
        Annotated[LossScaling, Meta(description="How losses are scaled", examples=["dynamic"])]
        | UnsetType
    ) = UNSET
    router_policy: (
        Annotated[
            Wording,
            Meta(description="How tokens choose experts, or experts tokens", examples=["top2"]),
        ]
        | UnsetType
    ) = UNSET
    overflow: (
        Annotated[
            OverflowPolicy,
            Meta(
                description="What happens to tokens beyond an expert's capacity: drop; pad (drop, "
                "and fill up to the capacity); dropless; dropless_padded (filled up to the largest "
                "count); reroute",
                examples=["drop"],
            ),
        ]
        | UnsetType
    ) = UNSET
    capacity_factor: (
        Annotated[
            Ratio,
            Meta(description="Capacity of an expert over its even share", examples=[1.25]),
        ]
        | UnsetType
    ) = UNSET
    dropped_token_fraction: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1,
                description="Share of the tokens that experts drop, as measured or expected",
                examples=[0.01],
            ),
        ]
        | UnsetType
    ) = UNSET
    random_state: (
        Annotated[
            Wording,
            Meta(
                description="Where random numbers start, and how ranks differ in them",
                examples=["seed 1234"],
            ),
        ]
        | UnsetType
    ) = UNSET


def contract_to_core(document: ContractDocument | UnsetType) -> Contract:
    """What is stated; nothing where the plan has no contract."""
    if isinstance(document, UnsetType):
        return Contract()
    return Contract(
        weight_update=or_none(document.weight_update),
        loss_scaling=or_none(document.loss_scaling),
        router_policy=or_none(document.router_policy),
        overflow=or_none(document.overflow),
        capacity_factor=or_none(document.capacity_factor),
        dropped_token_fraction=or_none(document.dropped_token_fraction),
        random_state=or_none(document.random_state),
    )
