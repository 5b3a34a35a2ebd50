"""What the ranks of one expert group ask of the experts of one layer, for one microbatch."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

__all__ = ["Assignments", "RoutingLevel"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class RoutingLevel(StrEnum):
    """What is known of a routing, from the most to the least."""

    TOKENS = "tokens"  # the experts of each token: all follows, also what copies can be spared
    SOURCES = "source_expert"  # how often each source asks for each expert
    COUNTS = "expert_counts"  # how often an expert is asked for: each source asks alike
    SKEW = "skew"  # a named distribution: nothing was measured


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """R sources, E experts; source r has `tokens[r]` tokens, each asking for `top_k` experts.

    `counts` (R, E): row r sums to `top_k` x `tokens[r]`, and none of it is above `tokens[r]`, as a
    token's experts differ. `choices` (sum of tokens, top_k) has the experts of each token, those of
    source r in `offsets[r]:offsets[r + 1]` in their order; None where only counts are known.
    `level` is that of the routing these are from.
    """

    counts: Int64Array
    tokens: Int64Array
    top_k: int
    level: RoutingLevel
    choices: Int32Array | None = None

    @property
    def sources(self) -> int:
        """How many ranks bring tokens."""
        return int(self.counts.shape[0])

    @property
    def experts(self) -> int:
        """How many experts there are, replicas not counted."""
        return int(self.counts.shape[1])

    @property
    def offsets(self) -> Int64Array:
        """(R + 1,) where the tokens of each source begin among all."""
        return np.concatenate(([0], np.cumsum(self.tokens)))

    @property
    def total(self) -> int:
        """Assignments of all sources together."""
        return int(self.counts.sum())
