"""The routing document: what `PUT /v1/routings/{name}` takes, and its way into the core."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.moe.recorded import Measure, Recorded
from service.core.moe.recording import BuiltRouting, build_routing, routing_of_skew
from service.core.moe.routing import Routing
from service.formats.documents.fields import MAX_STAGES, Text, or_none
from service.formats.documents.moe import MAX_EXPERTS
from service.formats.documents.skew import SkewDocument, skew_to_core

__all__ = [
    "MAX_COUNT",
    "MAX_LISTED_TOKENS",
    "MAX_NUMBER",
    "MAX_RECORDS",
    "RoutingDocument",
    "RoutingLayerDocument",
    "built_routing",
    "to_core",
]

# Layers times steps.
MAX_RECORDS = 16_384
# Assignments and tokens that are counted, and tokens that are listed.
MAX_COUNT = 2**40
MAX_LISTED_TOKENS = 2**21
MAX_NUMBER = 2**31 - 1

_Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
_Assignments = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
_Tokens = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
_Row = Annotated[tuple[_Assignments, ...], Meta(min_length=1, max_length=MAX_EXPERTS)]
_Choice = Annotated[
    tuple[Annotated[int, Meta(ge=-1, le=MAX_EXPERTS - 1)], ...],
    Meta(min_length=1, max_length=MAX_EXPERTS),
]


class RoutingLayerDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One layer in one step, by exactly one of `topk_ids`, `matrix` and `counts`; all layers of a
    routing have the same one, and the same steps.
    """

    layer: Annotated[_Number, Meta(description="Its number in the model, from 0.", examples=[7])]
    step: (
        Annotated[
            _Number,
            Meta(
                description="The step, such as an iteration or a microbatch; 0 when absent. Only "
                "their order counts: microbatch m of a plan is as step m modulo how many there "
                "are.",
                examples=[1001],
            ),
        ]
        | UnsetType
    ) = UNSET
    topk_ids: (
        Annotated[
            tuple[_Choice, ...],
            Meta(
                max_length=MAX_LISTED_TOKENS,
                description="The experts of each token, which differ. A token that is padding has "
                "-1 for all of them, or is marked in `padded`.",
                examples=[[[0, 3], [1, 3], [-1, -1]]],
            ),
        ]
        | UnsetType
    ) = UNSET
    matrix: (
        Annotated[
            tuple[_Row, ...],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="How often each source, a rank that brings tokens, asked for each "
                "expert: a row for each source, a count for each expert.",
                examples=[[[2, 1, 0, 1], [0, 1, 2, 1]]],
            ),
        ]
        | UnsetType
    ) = UNSET
    counts: (
        Annotated[
            _Row,
            Meta(description="How often each expert was asked for.", examples=[[2, 2, 2, 2]]),
        ]
        | UnsetType
    ) = UNSET
    tokens: (
        Annotated[
            _Tokens,
            Meta(description="Of this layer and step, if the document's are not its own."),
        ]
        | UnsetType
    ) = UNSET
    tokens_by_source: (
        Annotated[
            tuple[_Tokens, ...],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="Tokens of each source: of `topk_ids` those listed, padding included, "
                "source by source; of a `matrix` those of each row. Without it tokens of "
                "`topk_ids` have no source, and rows of a `matrix` say theirs by their sums.",
                examples=[[2, 1]],
            ),
        ]
        | UnsetType
    ) = UNSET
    padded: (
        Annotated[
            tuple[bool, ...],
            Meta(
                max_length=MAX_LISTED_TOKENS,
                description="For each of `topk_ids` whether it is padding, which is left out "
                "before anything is counted.",
            ),
        ]
        | UnsetType
    ) = UNSET
    padded_tokens: (
        Annotated[
            _Tokens,
            Meta(description="Tokens left out as padding when this was recorded."),
        ]
        | UnsetType
    ) = UNSET


class RoutingDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Which experts tokens ask for: recorded `layers`, or a named `skew`."""

    experts: Annotated[int, Meta(ge=1, le=MAX_EXPERTS, description="Of each layer.", examples=[4])]
    top_k: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_EXPERTS,
                description="Experts of each token. Absent where `counts` or a `matrix` are loads "
                "in a unit that is no number of tokens: these can be balanced, and carry no "
                "traffic.",
                examples=[2],
            ),
        ]
        | UnsetType
    ) = UNSET
    tokens: (
        Annotated[
            _Tokens,
            Meta(
                description="Of all sources in each layer and step, padding left out. With it "
                "counts are held against `top_k` x `tokens`.",
                examples=[4],
            ),
        ]
        | UnsetType
    ) = UNSET
    replicated: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_STAGES,
                description="How often each assignment was counted, as by so many data-parallel "
                "replicas that log the same: counts are divided by it. 1 when absent.",
            ),
        ]
        | UnsetType
    ) = UNSET
    layers: (
        Annotated[
            tuple[RoutingLayerDocument, ...],
            Meta(
                min_length=1,
                max_length=MAX_RECORDS,
                description="What was recorded, a layer and a step each.",
                examples=[[{"layer": 0, "counts": [2, 2, 2, 2]}]],
            ),
        ]
        | UnsetType
    ) = UNSET
    skew: (
        Annotated[SkewDocument, Meta(description="A shape of load instead of what was recorded.")]
        | UnsetType
    ) = UNSET
    model: (
        Annotated[Text, Meta(description="Whose routing it is.", examples=["OLMoE-1B-7B-0924"])]
        | UnsetType
    ) = UNSET
    dataset: (
        Annotated[Text, Meta(description="What its tokens are from.", examples=["c4"])] | UnsetType
    ) = UNSET
    description: Annotated[Text, Meta(description="Where it was recorded.")] | UnsetType = UNSET


def to_core(document: RoutingDocument) -> Routing:
    """The routing as the core knows it.

    Raises InvalidInput with every fault, paths into the document.
    """
    return built_routing(document).routing


def built_routing(document: RoutingDocument) -> BuiltRouting:
    """The same with what a person should know of how it was recorded."""
    faults = list(_check_alternatives(document))
    top_k = or_none(document.top_k)
    built = None
    try:
        if not isinstance(document.skew, UnsetType):
            skew = skew_to_core(document.skew)
            built = BuiltRouting(routing_of_skew(skew, document.experts, top_k))
        elif not isinstance(document.layers, UnsetType):
            measure = Measure(
                document.experts,
                top_k,
                tokens=or_none(document.tokens),
                replicated=or_none(document.replicated) or 1,
            )
            built = build_routing(measure, [_recorded(layer) for layer in document.layers])
    except InvalidInput as invalid:
        faults += invalid.faults
    if faults or built is None:
        raise InvalidInput(faults)
    return built


def _check_alternatives(document: RoutingDocument) -> list[Fault]:
    if isinstance(document.skew, UnsetType):
        if isinstance(document.layers, UnsetType):
            detail = "give the layers that were recorded, or a skew"
            return [Fault(FaultCode.MISSING_FIELD, ("layers",), detail)]
        return []
    return [
        Fault(FaultCode.EXCLUSIVE_FIELDS, (name,), "nothing was recorded where there is a skew")
        for name in ("layers", "tokens", "replicated")
        if getattr(document, name) is not UNSET
    ]


def _recorded(layer: RoutingLayerDocument) -> Recorded:
    return Recorded(
        layer=layer.layer,
        step=or_none(layer.step) or 0,
        topk_ids=or_none(layer.topk_ids),
        matrix=or_none(layer.matrix),
        counts=or_none(layer.counts),
        tokens=or_none(layer.tokens),
        tokens_by_source=or_none(layer.tokens_by_source),
        padded=or_none(layer.padded),
        padded_tokens=or_none(layer.padded_tokens) or 0,
    )
