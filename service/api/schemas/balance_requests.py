"""Wire types of questions about how a routing loads ranks."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.moe.balance_question import BalanceQuestion
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.settings import ReplicaSplitting
from service.formats.documents.fields import (
    MAX_LAYERS,
    MAX_STAGES,
    Count,
    PositiveCount,
    or_none,
    tuple_or_none,
)
from service.formats.documents.moe import MAX_EXPERTS

__all__ = ["BalanceRequest", "balance_question"]

MAX_FACTORS = 64
MAX_TOKENS_PER_RANK = 2**24

_Factor = Annotated[float, Meta(gt=0, le=1e6)]


class BalanceRequest(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The ranks that share the experts, what limits these, and what advice may use."""

    ranks: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_STAGES,
            description="That share the experts, one of them or more each. All bring tokens.",
            examples=[4],
        ),
    ]
    ranks_per_node: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_STAGES,
                description="Consecutive ranks on one host; where absent hosts do not matter.",
                examples=[2],
            ),
        ]
        | UnsetType
    ) = UNSET
    tokens_per_rank: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_TOKENS_PER_RANK,
                description="What each rank brings; when absent its share of what was recorded.",
            ),
        ]
        | UnsetType
    ) = UNSET
    layers: (
        Annotated[
            list[Annotated[int, Meta(ge=0, le=2**31 - 1)]],
            Meta(
                min_length=1,
                max_length=MAX_LAYERS,
                description="Of the routing, by their numbers there; all when absent.",
                examples=[[0, 1]],
            ),
        ]
        | UnsetType
    ) = UNSET
    placement: (
        Annotated[
            list[
                Annotated[
                    list[Annotated[int, Meta(ge=0, le=MAX_EXPERTS - 1)]],
                    Meta(max_length=MAX_EXPERTS),
                ]
            ],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="The experts on each rank; one on several is replicated. Contiguous "
                "when absent: where they do not divide the first ranks have one more.",
                examples=[[[0, 1], [2, 3], [4, 5], [6, 7, 5]]],
            ),
        ]
        | UnsetType
    ) = UNSET
    replica_splitting: Annotated[
        ReplicaSplitting,
        Meta(
            description="Which replica serves whom. even: each source divides its tokens over all; "
            "by_source: source r has replica r modulo their number; local_first: those on the "
            "source's rank, else on its host, else all."
        ),
    ] = ReplicaSplitting.EVEN
    overflow: (
        Annotated[
            OverflowPolicy,
            Meta(
                description="What happens to tokens beyond an expert's capacity; drop when absent "
                "beside a capacity_factor, dropless when absent without one.",
                examples=["drop"],
            ),
        ]
        | UnsetType
    ) = UNSET
    capacity_factor: (
        Annotated[
            _Factor,
            Meta(description="A capacity over the mean tokens of an expert.", examples=[1.25]),
        ]
        | UnsetType
    ) = UNSET
    capacity_scope: (
        Annotated[
            CapacityScope,
            Meta(
                description="Of which tokens it is a share: of each source's own, or of all "
                "together. Required beside a factor or factors.",
                examples=["source"],
            ),
        ]
        | UnsetType
    ) = UNSET
    capacity_minimum: (
        Annotated[Count, Meta(description="A capacity is at least so many tokens.")] | UnsetType
    ) = UNSET
    capacity_alignment: (
        Annotated[PositiveCount, Meta(description="And a multiple of this.")] | UnsetType
    ) = UNSET
    capacity_factors: (
        Annotated[
            list[_Factor],
            Meta(
                min_length=1,
                max_length=MAX_FACTORS,
                description="Factors to try in place of `capacity_factor`, each with what it drops "
                "and what the busiest rank then has.",
                examples=[[1.0, 1.25, 1.5]],
            ),
        ]
        | UnsetType
    ) = UNSET
    extra_slots: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_EXPERTS,
            description="Replicas that advice may add, beside advice without any.",
            examples=[4],
        ),
    ] = 0
    expert_groups: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_EXPERTS,
                description="Groups of consecutive experts that advice by host keeps together, as "
                "group-limited routing likes it.",
            ),
        ]
        | UnsetType
    ) = UNSET


def balance_question(data: BalanceRequest) -> BalanceQuestion:
    """The question of a request."""
    factors = tuple_or_none(data.capacity_factors) or ()
    placement = or_none(data.placement)
    return BalanceQuestion(
        ranks=data.ranks,
        ranks_per_node=or_none(data.ranks_per_node),
        experts_by_rank=None if placement is None else tuple(map(tuple, placement)),
        splitting=data.replica_splitting,
        tokens_per_rank=or_none(data.tokens_per_rank),
        capacity=_capacity(data, or_none(data.capacity_factor), swept=False),
        swept=_capacity(data, factors[0], swept=True) if factors else None,
        factors=factors,
        extra_slots=data.extra_slots,
        expert_groups=or_none(data.expert_groups),
        layers=tuple_or_none(data.layers),
    )


def _capacity(data: BalanceRequest, factor: float | None, *, swept: bool) -> Capacity:
    """Where a factor stands without a policy, tokens beyond it are dropped.

    What only the factors to try need is no part of a capacity that there is not.
    """
    default = OverflowPolicy.DROPLESS if factor is None else OverflowPolicy.DROP
    policy = or_none(data.overflow) or default
    if not swept and factor is None and data.capacity_factors is not UNSET:
        return Capacity(OverflowPolicy.DROPLESS)
    return Capacity(
        overflow=policy,
        factor=factor,
        scope=or_none(data.capacity_scope),
        minimum=or_none(data.capacity_minimum) or 0,
        alignment=or_none(data.capacity_alignment) or 1,
    )
