"""The `recompute` of a plan document: which layers drop activations and compute them again."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.profiles.measurement import Recompute
from service.core.profiles.patterns import MAX_PATTERNS
from service.formats.documents.fields import LayerPattern, or_none

__all__ = ["RecomputeDocument", "layers_to_core"]


class RecomputeDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Which activations are dropped and computed again."""

    default: (
        Annotated[
            Recompute,
            Meta(description="Of each layer; none when absent. A profile is asked for such points"),
        ]
        | UnsetType
    ) = UNSET
    layers: (
        Annotated[
            dict[LayerPattern, Recompute],
            Meta(
                min_length=1,
                max_length=MAX_PATTERNS,
                description="Layers of the model, by name or by pattern, with a policy of their "
                "own. A name goes before a pattern, and patterns agree where two fit a layer",
                examples=[{"block.*.mlp": "full"}],
            ),
        ]
        | UnsetType
    ) = UNSET


def layers_to_core(document: RecomputeDocument | None) -> tuple[tuple[str, str], ...]:
    """Layers or patterns with their own policies, in the order of their names."""
    layers = None if document is None else or_none(document.layers)
    return tuple((name, policy.value) for name, policy in sorted((layers or {}).items()))
