"""The mix of workloads: shares, means and what is unknown."""

from dataclasses import replace
from fractions import Fraction

import pytest

from service.core.estimates.estimate import Estimate, estimate_plan
from service.core.estimates.workloads import WeighedEstimate, mix_of
from service.core.plans.plan import GivenStage
from tests.core.estimates.made_plans import given_plan, simulated

MILLISECOND = 10**9


def estimate(*milliseconds: int, microbatches: int = 2) -> Estimate:
    stages = [GivenStage(m / 1000, m / 500) for m in milliseconds]
    return estimate_plan(simulated(given_plan(stages, microbatches=microbatches)))


def test_means_are_exact_and_worst_is_the_longest() -> None:
    """Equal stages of 3 ms: (M + 1) x 3 ms of two stages, here 9 and 15."""
    mix = mix_of(
        [
            WeighedEstimate(0.1, estimate(1, 1)),
            WeighedEstimate(0.2, estimate(1, 1, microbatches=4)),
            WeighedEstimate(0.3, estimate(1, 1)),
        ]
    )
    assert mix.weight_fractions == (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2))
    assert mix.mean_iteration == 11 * MILLISECOND
    assert mix.worst == 1
    assert mix.slowest_stages == ((0, Fraction(1)),)


def test_without_sizes_there_are_no_rates() -> None:
    mix = mix_of([WeighedEstimate(1.0, estimate(1, 2))])
    assert (mix.samples_per_second, mix.tokens_per_second) == (None, None)


def test_one_unknown_iteration_leaves_the_mean_unknown() -> None:
    known = estimate(1, 1)
    parts = replace(known.iteration_parts, picoseconds=None)
    unknown = replace(known, iteration_parts=parts)
    mix = mix_of([WeighedEstimate(1.0, known), WeighedEstimate(1.0, unknown)])
    assert (mix.mean_iteration, mix.worst) == (None, None)


@pytest.mark.parametrize("factor", [1.0, 1e-9, 3e8])
def test_only_the_ratio_of_weights_counts(factor: float) -> None:
    one, other = estimate(1, 2), estimate(2, 1)
    mix = mix_of([WeighedEstimate(factor, one), WeighedEstimate(factor, other)])
    assert mix.weight_fractions == (Fraction(1, 2),) * 2
    assert mix.slowest_stages == ((0, Fraction(1, 2)), (1, Fraction(1, 2)))
