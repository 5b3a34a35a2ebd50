"""Published formulas of the time of an iteration, and the range in which each is exact.

Each was held against simulation. Where its range ends the simulation stands alone, and the answer
says why.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CHIMERA",
    "DUAL_PIPE",
    "DUAL_PIPE_V",
    "ONE_STAGE_A_RANK",
    "SEVERAL_CHUNKS",
    "ZERO_BUBBLE_H1",
    "ZERO_BUBBLE_H2",
    "ZERO_BUBBLE_V",
    "ClosedForm",
    "EqualStages",
    "Metric",
]


class Metric(StrEnum):
    """What a formula gives: the time from 0 to the last end, or the longest a rank runs itself."""

    MAKESPAN = "makespan"
    SPAN = "span"


@dataclass(frozen=True, slots=True)
class EqualStages:
    """Counts, and what each stage takes for one microbatch, in one unit of time.

    `backward` is the whole backward, the sum of `backward_input` and `backward_weight` where these
    are run; `pair` a forward fused with a backward, None where pairs are run one after the other.
    """

    ranks: int
    microbatches: int
    chunks: int
    forward: int
    backward: int
    backward_input: int
    backward_weight: int
    pair: int | None = None

    @property
    def work(self) -> int:
        """Of one microbatch on one stage."""
        return self.forward + self.backward

    @property
    def rank_work(self) -> int:
        """Of one rank in one iteration."""
        return self.microbatches * self.chunks * self.work


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A published formula; `unmet` says why it is not exact for these numbers, None where it is.

    Beyond that all forms want equal stages joined in a chain, transfers that take no time, and no
    recompute that starts before its gradient.
    """

    name: str
    metric: Metric
    conditions: str
    value: Callable[[EqualStages], int]
    unmet: Callable[[EqualStages], str | None]


_EVERYWHERE = (
    "equal stages joined in a chain, transfers that take no time, and no recompute that starts "
    "before its gradient"
)


def _always(_equal: EqualStages) -> None:
    return None


ONE_STAGE_A_RANK = ClosedForm(
    name="(M + P - 1) x work of a stage",
    metric=Metric.MAKESPAN,
    conditions=_EVERYWHERE,
    value=lambda e: (e.microbatches + e.ranks - 1) * e.work,
    unmet=_always,
)

SEVERAL_CHUNKS = ClosedForm(
    name="(max(M, P) (v - 1) + M + P - 1) x work of a stage",
    metric=Metric.MAKESPAN,
    conditions=_EVERYWHERE,
    value=lambda e: (
        (max(e.microbatches, e.ranks) * (e.chunks - 1) + e.microbatches + e.ranks - 1) * e.work
    ),
    unmet=_always,
)


def _short_weights(equal: EqualStages) -> str | None:
    if equal.backward_weight <= min(equal.forward, equal.backward_input):
        return None
    return "the weight half is longer than the forward or the input half"


def _zero_bubble_h1(equal: EqualStages) -> str | None:
    if equal.microbatches < equal.ranks:
        return "there are fewer microbatches than ranks"
    return _short_weights(equal)


def _zero_bubble_h2(equal: EqualStages) -> str | None:
    if equal.microbatches < 2 * equal.ranks - 1:
        return "there are fewer than 2P - 1 microbatches"
    return _short_weights(equal)


def _zero_bubble_v(equal: EqualStages) -> str | None:
    if not equal.forward == equal.backward_input == equal.backward_weight:
        return "forward, input half and weight half are not equal"
    if equal.microbatches < 2 * equal.ranks - 1:
        return "there are fewer than 2P - 1 microbatches"
    return None


def _dual_pipe(equal: EqualStages) -> str | None:
    if equal.forward != equal.backward_input:
        return "the forward and the input half are not equal"
    if equal.pair is not None and equal.pair != equal.work:
        return "a pair does not take as long as its two halves, so ranks are not equally busy"
    return _short_weights(equal)


def _dual_pipe_bubble(turns: int, equal: EqualStages) -> int:
    """(turns - 1) (F&B + B - 3W) for fused pairs, (turns - 1) (F + I - W) one after the other."""
    if equal.pair is None:
        return (turns - 1) * (equal.forward + equal.backward_input - equal.backward_weight)
    return (turns - 1) * (equal.pair + equal.backward - 3 * equal.backward_weight)


def _chimera(equal: EqualStages) -> str | None:
    if equal.microbatches != equal.ranks:
        return "there are more microbatches than ranks"
    if equal.backward < equal.forward:
        return "the backward is shorter than the forward"
    return None


ZERO_BUBBLE_H1 = ClosedForm(
    name="work of a rank + (P - 1) (F + I - W)",
    metric=Metric.MAKESPAN,
    conditions=f"{_EVERYWHERE}; M >= P and W <= min(F, I)",
    value=lambda e: (
        e.rank_work + (e.ranks - 1) * (e.forward + e.backward_input - e.backward_weight)
    ),
    unmet=_zero_bubble_h1,
)

ZERO_BUBBLE_H2 = ClosedForm(
    name="work of a rank + (P - 1) (F + I - 2 W)",
    metric=Metric.SPAN,
    conditions=f"{_EVERYWHERE}; M >= 2 P - 1 and W <= min(F, I)",
    value=lambda e: (
        e.rank_work + (e.ranks - 1) * (e.forward + e.backward_input - 2 * e.backward_weight)
    ),
    unmet=_zero_bubble_h2,
)

ZERO_BUBBLE_V = ClosedForm(
    name="work of a rank",
    metric=Metric.SPAN,
    conditions=f"{_EVERYWHERE}; M >= 2 P - 1 and F = I = W",
    value=lambda e: e.rank_work,
    unmet=_zero_bubble_v,
)

DUAL_PIPE_V = ClosedForm(
    name="work of a rank + (P - 1) (F&B + B - 3 W), or (P - 1) (F + I - W) with serial pairs",
    metric=Metric.MAKESPAN,
    conditions=f"{_EVERYWHERE}; F = I >= W, and pairs that take F + B",
    value=lambda e: e.rank_work + _dual_pipe_bubble(e.ranks, e),
    unmet=_dual_pipe,
)

DUAL_PIPE = ClosedForm(
    name="work of a rank + (P/2 - 1) (F&B + B - 3 W), or (P/2 - 1) (F + I - W) with serial pairs",
    metric=Metric.MAKESPAN,
    conditions=f"{_EVERYWHERE}; F = I >= W, and pairs that take F + B",
    value=lambda e: e.rank_work + _dual_pipe_bubble(e.ranks // 2, e),
    unmet=_dual_pipe,
)

CHIMERA = ClosedForm(
    name="M x work of a stage + (P - 2) max(F, B)",
    metric=Metric.MAKESPAN,
    conditions=f"{_EVERYWHERE}; M = P and B >= F",
    value=lambda e: e.microbatches * e.work + (e.ranks - 2) * max(e.forward, e.backward),
    unmet=_chimera,
)
