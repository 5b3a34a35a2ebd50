"""The `partition` of a plan document: which layers each stage holds, and what crosses how."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.plans.loads import LoadRule
from service.core.plans.plan import Partition, SkipRouting, TiedParameters
from service.formats.documents.fields import (
    MAX_LAYERS,
    MAX_STAGES,
    Count,
    ElementName,
    or_none,
    tuple_or_none,
)

__all__ = ["PartitionDocument", "partition_to_core", "stated_stages"]


class PartitionDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Which layers each stage holds: one of layers_per_stage, cuts and stages."""

    layers_per_stage: (
        Annotated[
            list[Count],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="How many of the layers, in execution order, each stage takes",
                examples=[[13, 12, 12, 13]],
            ),
        ]
        | UnsetType
    ) = UNSET
    cuts: (
        Annotated[
            list[Count],
            Meta(
                max_length=MAX_STAGES,
                description="Position of the first layer of stage 1, stage 2, ...; ascending",
                examples=[[13, 25, 37]],
            ),
        ]
        | UnsetType
    ) = UNSET
    stages: (
        Annotated[
            list[Annotated[list[ElementName], Meta(max_length=MAX_LAYERS)]],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="The names of the layers of each stage, for models that are no chain",
                examples=[[["embedding", "block.0"], ["block.1", "head"]]],
            ),
        ]
        | UnsetType
    ) = UNSET
    skip_routing: (
        Annotated[
            SkipRouting,
            Meta(
                description="Whether a tensor for a later stage goes through each stage between "
                "(relay, when absent) or straight (direct)"
            ),
        ]
        | UnsetType
    ) = UNSET
    load_rule: (
        Annotated[
            LoadRule,
            Meta(
                description="By whose rule to count what each device has to do for a microbatch, "
                "beside the simulation, so that published values can be held against it: "
                "dnn_partitioning charges the profile's recorded transfers at both ends"
            ),
        ]
        | UnsetType
    ) = UNSET
    tied_parameters: (
        Annotated[
            TiedParameters,
            Meta(
                description="What becomes of a weight whose layers stand on several stages: it is "
                "refused (refuse, when absent), or each of these stages holds a copy and their "
                "gradients are added up after the last backward (duplicate)"
            ),
        ]
        | UnsetType
    ) = UNSET


def partition_to_core(document: PartitionDocument | None) -> Partition | None:
    """The partition as the plan states it, unchecked; None where it states none."""
    if document is None:
        return None
    stages = or_none(document.stages)
    return Partition(
        layers_per_stage=tuple_or_none(document.layers_per_stage),
        cuts=tuple_or_none(document.cuts),
        stages=None if stages is None else tuple(tuple(names) for names in stages),
        skip_routing=or_none(document.skip_routing) or SkipRouting.RELAY,
        tied_parameters=or_none(document.tied_parameters) or TiedParameters.REFUSE,
        load_rule=or_none(document.load_rule),
    )


def stated_stages(partition: Partition | None) -> int:
    """How many stages a partition speaks of; 1 where it says nothing."""
    if partition is None:
        return 1
    if partition.layers_per_stage is not None:
        return len(partition.layers_per_stage)
    if partition.cuts is not None:
        return len(partition.cuts) + 1
    return 1 if partition.stages is None else len(partition.stages)
