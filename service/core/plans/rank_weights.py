"""What a rank holds of the weights of its stages, and with how many others it shares a copy."""

from dataclasses import dataclass

from service.core.models.dtypes import DType

__all__ = ["HeldWeights", "PlacedWeights", "RankWeights"]


@dataclass(frozen=True, slots=True)
class HeldWeights:
    """Weights of one kind on a rank: `elements` after the split over `sharing` ranks, rounded up.

    `replicas` ranks hold the same elements, and so may split optimizer state among them. `dtype`
    is the model's, None where no model names one.
    """

    elements: int
    dtype: DType | None
    sharing: int
    replicas: int


@dataclass(frozen=True, slots=True)
class PlacedWeights:
    """Weights that a rank holds for one of its stages; `layer` is their place in the stage.

    `layer` is None where layers are not known.
    """

    held: HeldWeights
    is_expert: bool
    layer: int | None


@dataclass(frozen=True, slots=True)
class RankWeights:
    """What a rank of one pipeline rank holds, each weight once.

    `largest_layer` has those of the layer that holds most elements there, None where layers are
    not known; `buffer_bytes` likewise. `assumed_split` counts the elements, before they are split,
    of which nobody says over which ranks they are spread.
    """

    held: tuple[HeldWeights, ...]
    largest_layer: tuple[HeldWeights, ...] | None
    buffer_bytes: int | None
    assumed_split: int

    @property
    def elements(self) -> int:
        """All that a rank holds."""
        return sum(one.elements for one in self.held)
