"""What holds of every iteration: bounds below, more bandwidth no longer, nothing counted twice."""

from random import Random

import pytest

from service.core.plans.gradient_reduction import (
    GradientReduction,
    ReductionAlgorithm,
    ReductionOverlap,
)
from service.core.plans.plan import Plan
from service.core.plans.training import OptimizerSharding
from tests.core.estimates.reducing_plans import estimated, plan_of, trained, with_memory, world

SCHEDULES = (
    ("1f1b", 1, False),
    ("gpipe", 1, False),
    ("interleaved_1f1b", 2, False),
    ("zb_h1", 1, True),
    ("zb_v", 2, True),
    ("chimera", 1, False),
    ("dualpipe", 1, True),
)


def random_plan(random: Random) -> Plan:
    kind, chunks, split = random.choice(SCHEDULES)
    sharding = random.choice(list(OptimizerSharding))
    overlap = random.choice(list(ReductionOverlap))
    algorithm = random.choice([None, ReductionAlgorithm.RING, ReductionAlgorithm.TREE])
    if sharding is not OptimizerSharding.NONE:
        algorithm = None
    buckets = random.choice([10**8, 10**9]) if overlap is ReductionOverlap.BUCKETS else None
    ranks = random.choice([2, 4])
    return plan_of(
        [random.choice([0, 10**8, 3 * 10**9]) for _ in range(ranks * chunks)],
        microbatches=2 * ranks,
        schedule=kind,
        chunks=chunks,
        split=split,
        data=random.choice([1, 2, 3]),
        tensor=random.choice([1, 2]),
        training=trained(GradientReduction(algorithm, overlap, buckets), sharding),
        times=(random.choice([0.1, 1.0]), random.choice([0.2, 2.0])),
    )


@pytest.mark.parametrize("seed", range(30))
def test_no_bound_is_above_the_prediction_and_all_terms_add_up(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random)
    found = estimated(plan, with_memory(world(plan), random.choice([1e9, 1e12])))
    assert found.iteration is not None
    assert found.iteration >= found.bubble.makespan
    for bound in found.lower_bounds:
        assert bound.picoseconds <= found.iteration, bound.name
    for rank in found.iteration_parts.ranks:
        assert min(rank.exposed_reduction, rank.step or 0, rank.exposed_gather) >= 0
        assert rank.end <= found.iteration
        if rank.reduction is not None:
            done = max(rank.last_operation, rank.reduction.end)
            assert rank.last_operation + rank.exposed_reduction == done
    for part in found.iteration_parts.reductions:
        assert part.planned.priced is not None
        assert part.span is not None
        steps = zip(part.planned.priced.steps, part.planned.priced.bounds, strict=True)
        for step, bound_of in steps:
            assert bound_of.picoseconds <= part.planned.priced.alone_picoseconds(step)


@pytest.mark.parametrize("overlap", list(ReductionOverlap))
def test_more_bandwidth_never_takes_longer(overlap: ReductionOverlap) -> None:
    buckets = 10**9 if overlap is ReductionOverlap.BUCKETS else None
    reduction = GradientReduction(overlap=overlap, bucket_bytes=buckets)
    plan = plan_of([10**9, 10**8, 0, 10**9], microbatches=4, training=trained(reduction))
    times = [estimated(plan, rate=rate).iteration for rate in (1e8, 1e9, 4e9, 8e9)]
    assert None not in times
    assert times == sorted((time for time in times if time is not None), reverse=True)
    assert len(set(times)) == 4


def test_earlier_beginnings_never_end_later_where_nothing_is_shared() -> None:
    """One stage alone has gradients, so that nobody is on its links; latency is none."""
    ends = []
    for overlap in (ReductionOverlap.NONE, ReductionOverlap.STAGES, ReductionOverlap.BUCKETS):
        buckets = 5 * 10**8 if overlap is ReductionOverlap.BUCKETS else None
        reduction = GradientReduction(overlap=overlap, bucket_bytes=buckets)
        plan = plan_of(
            [0, 0, 4 * 10**9, 0],
            microbatches=4,
            schedule="interleaved_1f1b",
            chunks=2,
            training=trained(reduction),
        )
        rank = estimated(plan, latency=False).iteration_parts.ranks[0]
        assert rank.reduction is not None
        ends.append(rank.reduction.end)
    assert ends == sorted(ends, reverse=True)
    assert len(set(ends)) == 3
