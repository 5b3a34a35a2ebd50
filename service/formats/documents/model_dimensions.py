"""The dimensions of a layer in a model document: what its arithmetic follows from."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.errors import Fault, FaultCode, Path
from service.core.models.dimensions import Attention, Dimensions, Experts, LatentAttention, Mlp
from service.formats.documents.fields import or_none, or_unset

__all__ = [
    "AttentionDocument",
    "DimensionsDocument",
    "ExpertsDocument",
    "LatentAttentionDocument",
    "MlpDocument",
    "dimensions_document",
    "dimensions_to_core",
]

# So that no product of three of them, and no sum of such, leaves what JSON carries exactly by much.
_MAX_SIZE = 10**8

Size = Annotated[int, Meta(ge=1, le=_MAX_SIZE)]


class AttentionDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Attention with query heads that may share key-value heads."""

    heads: Annotated[Size, Meta(description="Query heads", examples=[32])]
    key_value_heads: (
        Annotated[Size, Meta(description="As many as heads when absent", examples=[8])] | UnsetType
    ) = UNSET
    head_size: Annotated[Size, Meta(description="Elements of a head", examples=[128])]


class LatentAttentionDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Multi-head latent attention."""

    heads: Annotated[Size, Meta(description="Heads", examples=[128])]
    query_rank: (
        Annotated[
            Size,
            Meta(
                description="Size of the space that queries go through; absent where they do not",
                examples=[1536],
            ),
        ]
        | UnsetType
    ) = UNSET
    key_value_rank: Annotated[
        Size, Meta(description="Size of the space that keys and values go through", examples=[512])
    ]
    plain_size: Annotated[
        Size, Meta(description="Elements of a head without rotary positions", examples=[128])
    ]
    rotary_size: Annotated[
        Size, Meta(description="Elements of a head with rotary positions", examples=[64])
    ]
    value_size: Annotated[Size, Meta(description="Elements of a value", examples=[128])]


class MlpDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A feed-forward part."""

    width: Annotated[Size, Meta(description="Elements between its matrices", examples=[14336])]
    gated: Annotated[bool, Meta(description="Whether it has a gate, as SwiGLU has")]


class ExpertsDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A router and feed-forward parts of which a token takes some."""

    count: Annotated[Size, Meta(description="Experts", examples=[8])]
    active: Annotated[Size, Meta(description="Experts that a token goes to", examples=[2])]
    width: Annotated[Size, Meta(description="Elements between the matrices of one expert")]
    gated: Annotated[bool, Meta(description="Whether each has a gate")]
    shared_width: (
        Annotated[
            Size, Meta(description="Width of what every token takes beside them; absent: none")
        ]
        | UnsetType
    ) = UNSET


class DimensionsDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What a layer of a transformer is made of. What it does not have is left out.

    FLOPs and saved activations of layers that nobody measured follow from it.
    """

    hidden_size: Annotated[
        Size, Meta(description="Elements of a token that come in and go out", examples=[4096])
    ]
    attention: Annotated[AttentionDocument, Meta(description="Behind a norm")] | UnsetType = UNSET
    latent_attention: (
        Annotated[LatentAttentionDocument, Meta(description="In place of attention")] | UnsetType
    ) = UNSET
    mlp: Annotated[MlpDocument, Meta(description="Behind a norm")] | UnsetType = UNSET
    experts: Annotated[ExpertsDocument, Meta(description="In place of mlp")] | UnsetType = UNSET
    embedding_vocabulary: (
        Annotated[Size, Meta(description="Tokens of a layer that looks them up", examples=[128256])]
        | UnsetType
    ) = UNSET
    head_vocabulary: (
        Annotated[Size, Meta(description="Tokens of a layer that makes logits", examples=[128256])]
        | UnsetType
    ) = UNSET


def dimensions_to_core(document: DimensionsDocument, path: Path, faults: list[Fault]) -> Dimensions:
    """The dimensions; what is wrong with them is added to `faults`, below `path`."""
    plain, latent = or_none(document.attention), or_none(document.latent_attention)
    mlp, experts = or_none(document.mlp), or_none(document.experts)
    for one, other, name in ((plain, latent, "latent_attention"), (mlp, experts, "experts")):
        if one is not None and other is not None:
            detail = f"stands in place of {'attention' if one is plain else 'mlp'}: leave one out"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, (*path, name), detail))
    attention: Attention | LatentAttention | None = None
    if plain is not None:
        shared = or_none(plain.key_value_heads) or plain.heads
        if plain.heads % shared:
            detail = f"divides heads {plain.heads}; got {shared}"
            here = (*path, "attention", "key_value_heads")
            faults.append(Fault(FaultCode.INDIVISIBLE, here, detail))
        attention = Attention(heads=plain.heads, key_value_heads=shared, head_size=plain.head_size)
    elif latent is not None:
        attention = LatentAttention(
            heads=latent.heads,
            query_rank=or_none(latent.query_rank) or 0,
            key_value_rank=latent.key_value_rank,
            plain_size=latent.plain_size,
            rotary_size=latent.rotary_size,
            value_size=latent.value_size,
        )
    return Dimensions(
        hidden=document.hidden_size,
        attention=attention,
        feed_forward=_feed_forward(mlp, experts, path, faults),
        embedding_vocabulary=or_none(document.embedding_vocabulary),
        head_vocabulary=or_none(document.head_vocabulary),
    )


def _feed_forward(
    mlp: MlpDocument | None, experts: ExpertsDocument | None, path: Path, faults: list[Fault]
) -> Mlp | Experts | None:
    if mlp is not None:
        return Mlp(width=mlp.width, gated=mlp.gated)
    if experts is None:
        return None
    if experts.active > experts.count:
        detail = f"is at most count {experts.count}; got {experts.active}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, (*path, "experts", "active"), detail))
    shared = or_none(experts.shared_width)
    return Experts(
        count=experts.count,
        active=experts.active,
        each=Mlp(width=experts.width, gated=experts.gated),
        shared=None if shared is None else Mlp(width=shared, gated=experts.gated),
    )


def dimensions_document(dimensions: Dimensions) -> DimensionsDocument:
    """The same as a document. Biases, norms and gates of a part are told by its weights."""
    attention, part = dimensions.attention, dimensions.feed_forward
    return DimensionsDocument(
        hidden_size=dimensions.hidden,
        attention=AttentionDocument(
            heads=attention.heads,
            key_value_heads=attention.key_value_heads,
            head_size=attention.head_size,
        )
        if isinstance(attention, Attention)
        else UNSET,
        latent_attention=LatentAttentionDocument(
            heads=attention.heads,
            query_rank=attention.query_rank or UNSET,
            key_value_rank=attention.key_value_rank,
            plain_size=attention.plain_size,
            rotary_size=attention.rotary_size,
            value_size=attention.value_size,
        )
        if isinstance(attention, LatentAttention)
        else UNSET,
        mlp=MlpDocument(width=part.width, gated=part.gated) if isinstance(part, Mlp) else UNSET,
        experts=ExpertsDocument(
            count=part.count,
            active=part.active,
            width=part.each.width,
            gated=part.each.gated,
            shared_width=UNSET if part.shared is None else part.shared.width,
        )
        if isinstance(part, Experts)
        else UNSET,
        embedding_vocabulary=or_unset(dimensions.embedding_vocabulary),
        head_vocabulary=or_unset(dimensions.head_vocabulary),
    )
