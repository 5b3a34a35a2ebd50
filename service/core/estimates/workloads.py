"""One plan under several workloads: what each asks of it, and what their mix does.

A partition that is even for one sequence length is not for another, so a plan is judged on all the
lengths that it will meet, each with its share of the iterations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, Protocol, TypeVar

from service.core.estimates.efficiency import iteration_tokens
from service.core.estimates.simulation import SimulatedPlan
from service.core.schedules.cadence import Cadence
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["Judged", "WeighedEstimate", "WorkloadMix", "mix_of"]


class Judged(Protocol):
    """What is known of a plan under one workload, as of an `Estimate`."""

    @property
    def simulated(self) -> SimulatedPlan:
        """Its run."""

    @property
    def cadence(self) -> Cadence:
        """Of its stages."""

    @property
    def iteration(self) -> Fraction | None:
        """Picoseconds; None where nobody knows."""


AnyJudged = TypeVar("AnyJudged", bound=Judged)


@dataclass(frozen=True, slots=True, eq=False)
class WeighedEstimate(Generic[AnyJudged]):
    """A plan under one workload, and how often that comes relative to the others (above 0)."""

    weight: float
    estimate: AnyJudged


@dataclass(frozen=True, slots=True)
class WorkloadMix:
    """Over the workloads in their order, whose shares `weight_fractions` sum to 1.

    `mean_iteration` is the weighted mean in picoseconds and `worst` the place of the longest
    iteration, the first of equals; both are None unless every iteration is known. Rates are those
    of a long run in which the workloads come by their shares: all samples (tokens) over all of the
    time, None unless every batch has a size. `slowest_stages` has, for each stage that is the
    slowest of its plan anywhere, the share of the iterations in which it is.
    """

    weight_fractions: tuple[Fraction, ...]
    mean_iteration: Fraction | None
    worst: int | None
    samples_per_second: Fraction | None
    tokens_per_second: Fraction | None
    slowest_stages: tuple[tuple[int, Fraction], ...]


def mix_of(weighed: Sequence[WeighedEstimate[AnyJudged]]) -> WorkloadMix:
    """The mix of at least one; exact, as weights are taken for the decimal fractions they are."""
    weights = [Fraction(repr(one.weight)) for one in weighed]
    whole = sum(weights)
    shares = tuple(weight / whole for weight in weights)
    estimates = [one.estimate for one in weighed]
    iterations = [one.iteration for one in estimates]
    mean = _weighted(shares, iterations)
    known = [iteration for iteration in iterations if iteration is not None]
    samples = _weighted(shares, [_samples(one) for one in estimates])
    tokens = _weighted(shares, [iteration_tokens(one.simulated.resolved) for one in estimates])
    slowest: dict[int, Fraction] = {}
    for share, one in zip(shares, estimates, strict=True):
        stage = one.cadence.slowest_stage
        slowest[stage] = slowest.get(stage, Fraction(0)) + share
    return WorkloadMix(
        weight_fractions=shares,
        mean_iteration=mean,
        worst=None if mean is None else known.index(max(known)),
        samples_per_second=_rate(samples, mean),
        tokens_per_second=_rate(tokens, mean),
        slowest_stages=tuple(sorted(slowest.items())),
    )


def _weighted(shares: Sequence[Fraction], numbers: Sequence[Fraction | None]) -> Fraction | None:
    """Their mean by shares; None where one is unknown."""
    total = Fraction(0)
    for share, number in zip(shares, numbers, strict=True):
        if number is None:
            return None
        total += share * number
    return total


def _samples(estimate: Judged) -> Fraction | None:
    size = estimate.simulated.resolved.global_batch_size
    return None if size is None else Fraction(size)


def _rate(number: Fraction | None, picoseconds: Fraction | None) -> Fraction | None:
    if number is None or not picoseconds:
        return None
    return number * PICOSECONDS_PER_SECOND / picoseconds
