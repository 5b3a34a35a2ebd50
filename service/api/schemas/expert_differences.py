"""Wire types of what differs between the experts of two plans."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.estimates.expert_differences import ExpertDifferences, ExpertLayerSide
from service.core.units import exact_seconds
from service.formats.documents.fields import or_unset
from service.web.problems import json_pointer

__all__ = [
    "ExpertDifferencesOut",
    "ExpertLayerDifference",
    "ExpertLayerSideOut",
    "MoeFieldDifference",
    "expert_differences_terms",
]

# Those whose experts' time differs most.
MAX_EXPERT_LAYERS = 64


class MoeFieldDifference(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A field of `moe` that differs, defaults among them."""

    pointer: Annotated[
        str, Meta(description="Its place in a plan.", examples=["/moe/capacity_factor"])
    ]
    before: Annotated[
        str | UnsetType, Meta(description="In the first plan; absent where that says nothing.")
    ] = UNSET
    after: Annotated[str | UnsetType, Meta(description="In the other plan.")] = UNSET


class ExpertLayerSideOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A layer with experts in one plan."""

    stage: Annotated[int, Meta(ge=0)]
    name: Annotated[str | UnsetType, Meta(description="Absent without a model.")] = UNSET
    forward_seconds: Annotated[
        float, Meta(ge=0, description="Of its experts and exchanges, the mean of microbatches.")
    ]
    backward_seconds: Annotated[float, Meta(ge=0, description="The same of the backward.")]
    most_rank_rows: Annotated[
        int, Meta(ge=0, description="The most that any rank receives in a microbatch.")
    ]


class ExpertLayerDifference(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A layer whose experts take another time."""

    layer: Annotated[int, Meta(ge=0, description="Its number among the layers with experts.")]
    before: Annotated[ExpertLayerSideOut | UnsetType, Meta(description="In the first plan.")] = (
        UNSET
    )
    after: Annotated[ExpertLayerSideOut | UnsetType, Meta(description="In the other plan.")] = UNSET


class ExpertDifferencesOut(msgspec.Struct, kw_only=True, frozen=True):
    """What the plans say of their experts, and what these take. Their time is part of compute."""

    fields: list[MoeFieldDifference]
    layers: Annotated[
        list[ExpertLayerDifference],
        Meta(description=f"In order; at most the {MAX_EXPERT_LAYERS} that differ most."),
    ]
    layers_in_all: Annotated[int, Meta(ge=0, description="How many differ.")]


def expert_differences_terms(found: ExpertDifferences) -> ExpertDifferencesOut | UnsetType:
    """The wire form; nothing where nothing differs."""
    if not found.settings and not found.layers:
        return UNSET
    return ExpertDifferencesOut(
        fields=[
            MoeFieldDifference(
                pointer=json_pointer(one.path),
                before=or_unset(one.before),
                after=or_unset(one.after),
            )
            for one in found.settings
        ],
        layers=[
            ExpertLayerDifference(
                layer=number,
                before=_side(found.layers[number][0]),
                after=_side(found.layers[number][1]),
            )
            for number in _most(found.layers)
        ],
        layers_in_all=len(found.layers),
    )


def _most(
    layers: Mapping[int, tuple[ExpertLayerSide | None, ExpertLayerSide | None]],
) -> list[int]:
    def takes(side: ExpertLayerSide | None) -> int:
        return 0 if side is None else int(side.forward + side.backward)

    by = sorted(
        layers, key=lambda number: -abs(takes(layers[number][1]) - takes(layers[number][0]))
    )
    return sorted(by[:MAX_EXPERT_LAYERS])


def _side(side: ExpertLayerSide | None) -> ExpertLayerSideOut | UnsetType:
    if side is None:
        return UNSET
    return ExpertLayerSideOut(
        stage=side.stage,
        name=or_unset(side.name),
        forward_seconds=exact_seconds(side.forward),
        backward_seconds=exact_seconds(side.backward),
        most_rank_rows=side.most_rows,
    )
