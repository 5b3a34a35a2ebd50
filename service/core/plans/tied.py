"""Copies of tied weights: which stages hold one, and how their gradients are added up."""

from dataclasses import dataclass
from enum import StrEnum

from service.core.topology.paths import PhysicalPath

__all__ = ["CopyRanks", "TiedCopies", "TiedParameters"]


class TiedParameters(StrEnum):
    """What becomes of a weight whose layers stand on several stages."""

    REFUSE = "refuse"
    DUPLICATE = "duplicate"  # each stage holds a copy, and their gradients are added up


@dataclass(frozen=True, slots=True)
class CopyRanks:
    """The ranks of one exchange, in the order of their ring.

    `paths` lead from each rank to the next and from the last to the first; empty without a
    topology, and where nothing is exchanged. Then the picoseconds of one exchange are None.
    """

    ranks: tuple[int, ...]
    devices: tuple[str | None, ...]
    paths: tuple[PhysicalPath, ...]
    bound_picoseconds: int | None
    picoseconds: int | None


@dataclass(frozen=True, slots=True)
class TiedCopies:
    """Weights that several stages hold, one copy on each of their pipeline ranks.

    `weights` share `stages`, and are exchanged together. Stages of one pipeline rank share its
    copy, so where `pipeline_ranks` has one entry nothing is copied and there are no `groups`.
    `parameter_count` is of all the weights, `rank_parameter_count` what one rank holds of them at
    most, and `rank_gradient_bytes` what it adds up with the other copies, once after the last
    backward: 0 where the schedule has none.

    `bound_picoseconds` is the least that all groups take from the first start to the last end,
    `picoseconds` the prediction of that; None where the plan has no topology.
    """

    weights: tuple[str, ...]
    stages: tuple[int, ...]
    pipeline_ranks: tuple[int, ...]
    parameter_count: int
    rank_parameter_count: int
    rank_parameter_bytes: int
    rank_gradient_bytes: int
    groups: tuple[CopyRanks, ...]
    bound_picoseconds: int | None
    picoseconds: int | None
