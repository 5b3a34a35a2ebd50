"""A routing that is uneven shows in the schedule, beside what an even one would have said."""

from fractions import Fraction
from typing import Any

from service.core.estimates.cadence import plan_cadence
from service.core.estimates.simulation import SimulatedPlan, simulate_plan
from service.core.estimates.uniform_routing import beside_uniform, evenly_routed, is_uneven
from service.core.moe.routing import Routing
from service.core.plans.resolve import resolve
from tests.core.plans.moe.expert_worlds import document, hot, resolved, seen
from tests.core.plans.worlds import cluster

EVEN = [[64] * 8] * 2


def both(
    asked: dict[str, Any], routing: Routing | None = None
) -> tuple[SimulatedPlan, SimulatedPlan]:
    """The plan as it is routed, and evenly; stages by themselves take 1 us and 2 us."""
    short = {"forward_seconds": 1e-6, "backward_seconds": 2e-6}
    asked["costs"] = {"stages": [short] * len(asked["costs"]["stages"])}
    routed = resolved(asked, routing)
    even = resolve(evenly_routed(routed.plan), cluster=cluster(gpus=len(routed.stages)))
    return simulate_plan(routed), simulate_plan(even)


def test_a_hot_expert_makes_its_stage_the_slowest() -> None:
    """Three stages of two expert layers each; in the middle one all tokens go to rank 0."""
    layers = [EVEN, EVEN, hot(0), hot(0), EVEN, EVEN]
    asked = document([2, 2, 2])
    asked["schedule"] |= {"transfer_mode": "latency"}
    found = beside_uniform(*both(asked, seen(layers, top_k=2)))
    assert found.routed.slowest_stage == 1
    assert found.uniform.slowest_stage == 0
    # Both layers, forward and backward: 256 more copies of 128 B at 8 GB/s there and back again,
    # and 512 more rows of 125.829 ns, three times.
    more = 2 * (4 * 4_096_000 + 3 * 125_829)
    assert found.steady_difference == more
    # The bound lets what goes to the hot rank overlap with what comes from it, which together is as
    # much each way as evenly: only the rows are more, and exchanges hide these.
    assert found.routed.cadence_bound == found.uniform.cadence_bound
    assert found.routed.makespan > found.uniform.makespan
    assert found.iteration_difference == found.routed.makespan - found.uniform.makespan


def test_a_straggling_microbatch_holds_back_those_behind_it() -> None:
    """One of four microbatches is uneven: the mean grows by a quarter of it, the makespan by all.

    On one stage nothing hides it: the makespan is the sum.
    """
    steps = [[EVEN], [EVEN], [hot(1)], [EVEN]]
    routed, even = both(document([1]), seen(*steps, top_k=2))
    found = beside_uniform(routed, even)
    more = 4 * 4_096_000 + 3 * 125_829
    assert found.routed.makespan - found.uniform.makespan == more
    works = [plan_cadence(one).stages[0].work for one in (routed, even)]
    assert works[0] - works[1] == Fraction(more, 4)


def test_an_even_plan_is_its_own_twin() -> None:
    routed, even = both(document([1, 1]))
    assert not is_uneven(routed.resolved)
    found = beside_uniform(routed, even)
    assert found.routed == found.uniform
    assert found.iteration_difference == 0


def test_a_skew_is_uneven_and_a_uniform_one_is_not() -> None:
    assert is_uneven(resolved(document([1], skew={"kind": "zipf", "exponent": 1})))
    assert not is_uneven(resolved(document([1], skew={"kind": "uniform"})))
    plain = document([1])
    del plain["moe"]
    assert not is_uneven(resolved(plain))


def test_what_is_not_known_of_memory_is_absent() -> None:
    found = beside_uniform(*both(document([1]), seen([hot(0)], top_k=2)))
    assert found.routed.peak_activation_bytes is None
    assert found.routed.peak_bytes is None
