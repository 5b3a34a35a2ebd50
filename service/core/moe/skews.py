"""Named distributions of tokens over experts, for what nobody has measured."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Skew", "SkewKind"]


class SkewKind(StrEnum):
    """The shapes of load that people test with."""

    UNIFORM = "uniform"
    ZIPF = "zipf"  # the expert of rank i (from 1) is asked for as i ** -exponent
    POWER_LAW = "power_law"  # loads drawn from a density x ** -exponent on [least, most]
    HOT_EXPERT = "hot_expert"  # one expert has `fraction` of what it could have
    HOT_RANK = "hot_rank"  # and so have all experts of one rank
    EMPTY_RANK = "empty_rank"  # nobody asks for the experts of one rank
    ROTATING = "rotating"  # a hot expert that is another one in each step
    BURST = "burst"  # uniform, but for every `period`-th step, which has a hot expert


@dataclass(frozen=True, slots=True)
class Skew:
    """A shape and its numbers; those that a kind does not have are None.

    `expert` and `rank` say where it is hot or empty, `seed` numbers a drawing.
    """

    kind: SkewKind
    exponent: float | None = None
    fraction: float | None = None
    expert: int | None = None
    rank: int | None = None
    least: float | None = None
    most: float | None = None
    period: int | None = None
    seed: int | None = None
    steps: int = 1
