"""One expert layer for one microbatch: dispatch, products, combine, one after the other or not.

All ranks of a group wait for each other in its exchanges, so the slowest of each part counts. A
backward runs the same parts, the gradient of the combine being a dispatch; recomputation repeats
the forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from service.core.moe.exchange import GroupExchange
from service.core.moe.settings import Overlap

__all__ = ["LayerParts", "exchanged_together", "overlapped_bound_picoseconds", "step_picoseconds"]


@dataclass(frozen=True, slots=True)
class LayerParts:
    """Picoseconds of the parts of a layer, each of the rank that takes longest.

    `shared` is a shared expert, that of a layer without one 0.
    """

    pack: int
    dispatch: int
    compute: int
    combine: int
    unpack: int
    shared: int = 0

    @property
    def exchange(self) -> int:
        """Dispatch and combine."""
        return self.dispatch + self.combine


def step_picoseconds(parts: LayerParts, overlap: Overlap) -> int:
    """What a layer is expected to take, to the nearest picosecond.

    In m chunks, of which the exchanges of one run under the products of another, it takes
    (D + K + C) / m + (m - 1) / m max(D + C, K): the first chunk by itself, then the longer of a
    stream of communication (dispatches and combines in turn) and of the products, K being what is
    left of the device makes of them. A shared expert under the dispatch is hidden as far as that is
    long; packing is not.
    """
    outside = parts.pack + parts.unpack
    dispatch = parts.dispatch
    if overlap.shared_expert:
        outside += max(parts.shared - dispatch, 0)
    else:
        outside += parts.shared
    if overlap.chunks == 1:
        return outside + parts.exchange + parts.compute
    chunks = overlap.chunks
    compute = Fraction(parts.compute) / Fraction(overlap.compute_fraction_left)
    first = (parts.exchange + compute) / chunks
    others = Fraction(chunks - 1, chunks) * max(Fraction(parts.exchange), compute)
    return outside + round(first + others)


def exchanged_together(
    dispatch: Sequence[GroupExchange], combine: Sequence[GroupExchange]
) -> tuple[GroupExchange, ...]:
    """Both exchanges of each group as one, for bounds of a step in which they may overlap.

    Links work both ways at once, so what goes to a hot rank and what comes from it may overlap:
    bounds look at each direction of each resource by itself.
    """
    return tuple(
        GroupExchange(
            there.devices,
            (*there.stages, *back.stages),
            None
            if there.fewest is None and back.fewest is None
            else (*(there.fewest or there.stages), *(back.fewest or back.stages)),
        )
        for there, back in zip(dispatch, combine, strict=True)
    )


def overlapped_bound_picoseconds(exchange_bound: int, least_compute: int) -> int:
    """What no schedule of a layer goes below, however well its parts overlap.

    `exchange_bound` is that of `exchanged_together`, `least_compute` what the fullest rank computes
    at nominal rates at least. The longer of both; their sum is no bound, nor is the longer of D + C
    and K, which is what one stream of communication is expected to take.
    """
    return max(exchange_bound, least_compute)
