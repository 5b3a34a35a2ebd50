"""A named distribution of tokens over experts, as documents state it."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.moe.skews import Skew, SkewKind
from service.formats.documents.fields import Count, or_none

__all__ = ["MAX_STEPS", "SkewDocument", "skew_to_core"]

# Of a routing, each read by the microbatches that are equal to it modulo their number.
MAX_STEPS = 4096

_Above = Annotated[float, Meta(gt=0, le=1e6)]


class SkewDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A shape of load and its numbers; a kind has those that its description names."""

    kind: Annotated[
        SkewKind,
        Meta(
            description="uniform; zipf (exponent); power_law (exponent, least, most, seed); "
            "hot_expert (fraction, expert); hot_rank (fraction, rank); empty_rank (rank); "
            "rotating (fraction, steps); burst (fraction, expert, period, steps)",
            examples=["hot_expert"],
        ),
    ]
    exponent: (
        Annotated[
            float,
            Meta(ge=0, le=100, description="Of zipf and power_law", examples=[1.2]),
        ]
        | UnsetType
    ) = UNSET
    fraction: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1,
                description="Part of the tokens that ask for the hot expert; of hot_rank part of "
                "the most that its experts could be asked for together",
                examples=[0.5],
            ),
        ]
        | UnsetType
    ) = UNSET
    expert: Annotated[Count, Meta(description="Which one is hot")] | UnsetType = UNSET
    rank: (
        Annotated[Count, Meta(description="Which rank of an expert group is hot or empty")]
        | UnsetType
    ) = UNSET
    least: Annotated[_Above, Meta(description="Of the loads of power_law")] | UnsetType = UNSET
    most: Annotated[_Above, Meta(description="Of the loads of power_law")] | UnsetType = UNSET
    period: (
        Annotated[
            int, Meta(ge=1, le=MAX_STEPS, description="Of burst: each so many steps have one")
        ]
        | UnsetType
    ) = UNSET
    seed: Annotated[Count, Meta(description="Numbers the drawing of power_law")] | UnsetType = UNSET
    steps: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_STEPS,
                description="How many steps there are; 1 when absent. Microbatch m has step m "
                "modulo steps",
            ),
        ]
        | UnsetType
    ) = UNSET


def skew_to_core(document: SkewDocument) -> Skew:
    """As the document states it, unchecked."""
    return Skew(
        kind=document.kind,
        exponent=or_none(document.exponent),
        fraction=or_none(document.fraction),
        expert=or_none(document.expert),
        rank=or_none(document.rank),
        least=or_none(document.least),
        most=or_none(document.most),
        period=or_none(document.period),
        seed=or_none(document.seed),
        steps=or_none(document.steps) or 1,
    )
