"""How many tokens an expert takes, and what happens to those beyond."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Capacity", "CapacityScope", "DropOrder", "OverflowPolicy"]


class OverflowPolicy(StrEnum):
    """What happens to tokens beyond the capacity of an expert."""

    DROP = "drop"
    PAD = "pad"  # dropped too, and every expert computes as many rows as its capacity
    DROPLESS = "dropless"
    DROPLESS_PADDED = "dropless_padded"  # capacity is the largest count of the group
    REROUTE = "reroute"  # they go to experts that have room left; beyond all room they are dropped
    FALLBACK = "fallback"  # they go through a shared or dense path that every rank has


class CapacityScope(StrEnum):
    """Of which tokens a capacity is a share."""

    SOURCE = "source"  # of each source's own: it may send so many to an expert
    GLOBAL = "global"  # of all sources' together: an expert takes so many from all


class DropOrder(StrEnum):
    """Which tokens are beyond a capacity. It changes no count, but which copies can be spared."""

    POSITION = "position"  # the last ones of a source
    PROBABILITY = "probability"  # those with the least weight: who that is, no routing here says


@dataclass(frozen=True, slots=True)
class Capacity:
    """`factor` times the mean of tokens of an expert, rounded up, at least `minimum`, then up to a
    multiple of `alignment`.

    `factor` and `scope` are None exactly where the policy has no capacity.
    """

    overflow: OverflowPolicy
    factor: float | None = None
    scope: CapacityScope | None = None
    minimum: int = 0
    alignment: int = 1
    order: DropOrder = DropOrder.POSITION

    @property
    def limits(self) -> bool:
        """Whether an expert takes so many tokens and no more."""
        return self.overflow not in (OverflowPolicy.DROPLESS, OverflowPolicy.DROPLESS_PADDED)
