"""The `moe` of a plan document: how its experts run, and who asks for them."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.moe.overflow import Capacity, CapacityScope, DropOrder, OverflowPolicy
from service.core.moe.settings import (
    Deduplication,
    Dispatcher,
    ExpertShape,
    LayerCostsInclude,
    MoeSettings,
    Overlap,
    ReplicaSplitting,
)
from service.formats.documents.fields import (
    MAX_LAYERS,
    MAX_STAGES,
    Count,
    PositiveCount,
    Reference,
    Seconds,
    or_none,
    tuple_or_none,
)
from service.formats.documents.moe_costs import (
    ExpertComputeDocument,
    PayloadsDocument,
    compute_to_core,
    payloads_to_core,
)
from service.formats.documents.skew import SkewDocument, skew_to_core

__all__ = ["ExpertShapeDocument", "MoeDocument", "OverlapDocument", "moe_to_core"]

# Of one layer, in a routing as in a plan.
MAX_EXPERTS = 65_536

Fraction = Annotated[float, Meta(gt=0, le=1)]


class OverlapDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What runs under what in a layer with experts; without it one after the other."""

    chunks: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=1024,
                description="Parts of a microbatch's tokens: the exchange of one runs under the "
                "products of another. 1 when absent",
            ),
        ]
        | UnsetType
    ) = UNSET
    compute_fraction_left: (
        Annotated[
            Fraction,
            Meta(
                description="What exchanges leave of a device to the products beside them, as of "
                "its multiprocessors; 1 when absent",
                examples=[0.85],
            ),
        ]
        | UnsetType
    ) = UNSET
    shared_expert: (
        Annotated[
            bool, Meta(description="Whether the shared expert runs under the dispatch; false")
        ]
        | UnsetType
    ) = UNSET


class ExpertShapeDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Layers with experts, for plans that state their stages and name no model."""

    layers_per_stage: Annotated[
        list[Annotated[int, Meta(ge=0, le=MAX_LAYERS)]],
        Meta(
            min_length=1,
            max_length=MAX_STAGES,
            description="How many layers with experts each stage has",
            examples=[[2, 2]],
        ),
    ]
    hidden_size: Annotated[PositiveCount, Meta(description="Elements of a token")]
    experts: Annotated[int, Meta(ge=1, le=MAX_EXPERTS, description="Of each of these layers")]
    top_k: Annotated[int, Meta(ge=1, le=MAX_EXPERTS, description="Experts of each token")]
    width: Annotated[PositiveCount, Meta(description="Inner elements of one expert")]
    gated: (
        Annotated[bool, Meta(description="Whether an expert has a gate; true when absent")]
        | UnsetType
    ) = UNSET
    tokens_per_rank: (
        Annotated[
            PositiveCount,
            Meta(
                description="Tokens of a microbatch on each rank, where the workload does not say "
                "microbatch size and sequence length, from which they follow"
            ),
        ]
        | UnsetType
    ) = UNSET


class MoeDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How the experts of the model's layers run. Tokens choose evenly where no routing is given.

    With it the time of each stage has the experts of its layers in it: exchanges on the topology
    and products, of the rank that takes longest in each layer.
    """

    routing: (
        Annotated[
            Reference,
            Meta(
                description="A stored routing; microbatch m has its step m modulo their number",
                examples=["mixtral-c4@1"],
            ),
        ]
        | UnsetType
    ) = UNSET
    skew: (
        Annotated[SkewDocument, Meta(description="In place of a routing: a named distribution")]
        | UnsetType
    ) = UNSET
    routing_layers: (
        Annotated[
            list[Annotated[int, Meta(ge=0, le=MAX_LAYERS)]],
            Meta(
                min_length=1,
                max_length=MAX_LAYERS,
                description="Which layer of the routing, by the number that it has there, stands "
                "for each layer with experts, in execution order. When absent as many are read in "
                "order, and of another number each has the one nearest to its place among them",
            ),
        ]
        | UnsetType
    ) = UNSET
    overflow: (
        Annotated[
            OverflowPolicy,
            Meta(
                description="What happens to tokens beyond an expert's capacity: drop (when absent "
                "beside a capacity_factor); pad (drop, and fill up to the capacity); reroute (to "
                "experts with room); fallback (by a path of the rank's own). dropless (when absent "
                "without one) and dropless_padded have no capacity",
                examples=["drop"],
            ),
        ]
        | UnsetType
    ) = UNSET
    capacity_factor: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1e6,
                description="An expert's capacity over its mean number of tokens",
                examples=[1.25],
            ),
        ]
        | UnsetType
    ) = UNSET
    capacity_scope: (
        Annotated[
            CapacityScope,
            Meta(
                description="Of which tokens the capacity is a share: of each source rank's own, "
                "or of all together. Required beside capacity_factor",
                examples=["source"],
            ),
        ]
        | UnsetType
    ) = UNSET
    capacity_minimum: (
        Annotated[Count, Meta(description="A capacity is at least so many tokens; 0 when absent")]
        | UnsetType
    ) = UNSET
    capacity_alignment: (
        Annotated[
            PositiveCount,
            Meta(description="A capacity is rounded up to a multiple of this; 1 when absent"),
        ]
        | UnsetType
    ) = UNSET
    drop_order: (
        Annotated[
            DropOrder,
            Meta(
                description="Which tokens are beyond a capacity: the last ones of a source "
                "(position, when absent), or those of the least weight, which no routing here says"
            ),
        ]
        | UnsetType
    ) = UNSET
    placement: (
        Annotated[
            list[
                Annotated[
                    list[Annotated[int, Meta(ge=0, lt=MAX_EXPERTS)]], Meta(max_length=MAX_EXPERTS)
                ]
            ],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="The experts of each rank of an expert group; one that stands several "
                "times is replicated. When absent as many on each, in their order",
                examples=[[[0, 1], [2, 3]]],
            ),
        ]
        | UnsetType
    ) = UNSET
    replica_splitting: (
        Annotated[
            ReplicaSplitting,
            Meta(
                description="Which replica serves whom: each source divides its tokens over all "
                "(even, when absent), source r goes to replica r modulo their number (by_source), "
                "or its own rank or host goes first (local_first)"
            ),
        ]
        | UnsetType
    ) = UNSET
    dispatcher: (
        Annotated[
            Dispatcher,
            Meta(
                description="How tokens get to their experts: all_to_all (when absent), or "
                "all_gather, which sends all tokens to all ranks of the group"
            ),
        ]
        | UnsetType
    ) = UNSET
    deduplication: (
        Annotated[
            Deduplication,
            Meta(
                description="Of which of a token's experts one copy is sent: of each (none, when "
                "absent), of all on one rank, or of all in one host (node), where the rank of like "
                "place passes it on"
            ),
        ]
        | UnsetType
    ) = UNSET
    payloads: (
        Annotated[PayloadsDocument, Meta(description="What one copy of a token weighs")] | UnsetType
    ) = UNSET
    compute: (
        Annotated[ExpertComputeDocument, Meta(description="What the experts' products take")]
        | UnsetType
    ) = UNSET
    overlap: Annotated[OverlapDocument, Meta(description="What runs under what")] | UnsetType = (
        UNSET
    )
    exchange_efficiency: (
        Annotated[
            Fraction,
            Meta(
                description="Part of the effective bandwidth that exchanges reach, which makes "
                "predictions longer and leaves bounds as they are; 1 when absent",
                examples=[0.8],
            ),
        ]
        | UnsetType
    ) = UNSET
    fallback_seconds_per_row: (
        Annotated[
            Seconds,
            Meta(
                description="What a token takes on the fallback path in its forward, beside the "
                "experts; required with overflow fallback"
            ),
        ]
        | UnsetType
    ) = UNSET
    layer_costs_include: (
        Annotated[
            LayerCostsInclude,
            Meta(
                description="What of a layer with experts the given or measured costs contain: "
                "nothing, the experts' products, or their exchanges too, both of tokens that "
                "choose evenly. Required beside stages and with a profile; assumed costs contain "
                "experts",
                examples=["experts"],
            ),
        ]
        | UnsetType
    ) = UNSET
    rows_percentile: (
        Annotated[
            Fraction,
            Meta(
                description="For which share of layers and microbatches the received rows fit the "
                "memory that is counted; 1, the most of any, when absent",
                examples=[0.99],
            ),
        ]
        | UnsetType
    ) = UNSET
    weights_after_experts: (
        Annotated[
            bool,
            Meta(
                description="Whether routing weights multiply what experts give: then outputs "
                "are kept for the backward. When absent they multiply before the last product of "
                "an expert, and no output is kept"
            ),
        ]
        | UnsetType
    ) = UNSET
    shape: (
        Annotated[
            ExpertShapeDocument,
            Meta(description="The layers with experts of a plan that names no model"),
        ]
        | UnsetType
    ) = UNSET


def moe_to_core(document: MoeDocument) -> MoeSettings:
    """As the plan states it, unchecked."""
    payloads, compute = or_none(document.payloads), or_none(document.compute)
    skew, shape = or_none(document.skew), or_none(document.shape)
    placement = or_none(document.placement)
    default = MoeSettings()
    return MoeSettings(
        capacity=_capacity(document),
        routing=or_none(document.routing),
        skew=None if skew is None else skew_to_core(skew),
        routing_layers=tuple_or_none(document.routing_layers),
        shape=None if shape is None else _shape(shape),
        experts_by_rank=None if placement is None else tuple(tuple(each) for each in placement),
        replica_splitting=or_none(document.replica_splitting) or default.replica_splitting,
        dispatcher=or_none(document.dispatcher) or default.dispatcher,
        deduplication=or_none(document.deduplication) or default.deduplication,
        payloads=default.payloads if payloads is None else payloads_to_core(payloads),
        compute=default.compute if compute is None else compute_to_core(compute),
        layer_costs_include=or_none(document.layer_costs_include),
        overlap=_overlap(or_none(document.overlap)),
        exchange_efficiency=or_none(document.exchange_efficiency) or default.exchange_efficiency,
        fallback_seconds_per_row=or_none(document.fallback_seconds_per_row),
        rows_percentile=or_none(document.rows_percentile) or default.rows_percentile,
        weights_after_experts=or_none(document.weights_after_experts) or False,
    )


def _capacity(document: MoeDocument) -> Capacity:
    """Where a factor stands without a policy, tokens beyond it are dropped."""
    factor = or_none(document.capacity_factor)
    default = OverflowPolicy.DROPLESS if factor is None else OverflowPolicy.DROP
    return Capacity(
        overflow=or_none(document.overflow) or default,
        factor=factor,
        scope=or_none(document.capacity_scope),
        minimum=or_none(document.capacity_minimum) or 0,
        alignment=or_none(document.capacity_alignment) or 1,
        order=or_none(document.drop_order) or DropOrder.POSITION,
    )


def _overlap(document: OverlapDocument | None) -> Overlap:
    if document is None:
        return Overlap()
    return Overlap(
        chunks=or_none(document.chunks) or 1,
        compute_fraction_left=or_none(document.compute_fraction_left) or 1.0,
        shared_expert=or_none(document.shared_expert) or False,
    )


def _shape(document: ExpertShapeDocument) -> ExpertShape:
    gated = or_none(document.gated)
    return ExpertShape(
        layers_per_stage=tuple(document.layers_per_stage),
        hidden_size=document.hidden_size,
        experts=document.experts,
        top_k=document.top_k,
        width=document.width,
        gated=True if gated is None else gated,
        tokens_per_rank=or_none(document.tokens_per_rank),
    )
