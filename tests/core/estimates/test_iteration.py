"""What follows the schedule in an iteration, by hand: reductions, what hides them, the step."""

from dataclasses import replace
from fractions import Fraction

import pytest

from service.core.amounts import SizeClasses
from service.core.errors import FaultCode, Path
from service.core.estimates.estimate import Estimate
from service.core.estimates.iteration import RankIteration
from service.core.estimates.reduction.sharing import Span
from service.core.estimates.reduction.timing import Task, exchange_copies, run_beside
from service.core.models.dtypes import DType
from service.core.plans.gradient_reduction import (
    GradientReduction,
    ReductionAlgorithm,
    ReductionOverlap,
)
from service.core.plans.plan import Plan
from service.core.plans.tied import CopyRanks, TiedCopies
from service.core.plans.training import Optimizer, OptimizerSharding, Training
from tests.core.estimates.reducing_plans import (
    LATENCY,
    SECOND,
    estimated,
    plan_of,
    trained,
    with_memory,
    world,
)
from tests.core.refusals import refusals

# Bytes of gradients that a NIC of 8 GB/s carries in a second; each of two ranks sends all of its.
SECONDS_WORTH = 4 * 10**9
TWO_STEPS = 2 * LATENCY


def ranks(found: Estimate) -> tuple[RankIteration, ...]:
    return found.iteration_parts.ranks


def codes(found: Estimate) -> set[str]:
    return {statement.code for statement in found.iteration_parts.not_represented}


def test_the_last_stage_reduces_in_the_drain_and_the_first_after_it() -> None:
    """1F1B of two stages and microbatches ends at 7 s on rank 1 and at 9 s on rank 0."""
    found = estimated(plan_of([SECONDS_WORTH] * 2))
    first, last = ranks(found)
    assert (first.last_operation, last.last_operation) == (9 * SECOND, 7 * SECOND)
    assert (last.exposed_reduction, last.end) == (SECOND + TWO_STEPS, 8 * SECOND + TWO_STEPS)
    assert first.exposed_reduction == SECOND + TWO_STEPS
    assert found.iteration == first.end == 10 * SECOND + TWO_STEPS
    assert found.iteration_parts.last_rank == 0
    assert found.bubble.makespan == 9 * SECOND


def test_nothing_hides_the_reduction_of_the_first_of_four_stages() -> None:
    found = estimated(plan_of([0, 0, 0, SECONDS_WORTH], microbatches=4))
    first, *_, last = ranks(found)
    # Rank 3 is done at 3 + 4 x 3 s, and three backwards of the last microbatch follow.
    assert (first.last_operation, last.last_operation) == (21 * SECOND, 15 * SECOND)
    assert last.end == 16 * SECOND + TWO_STEPS
    assert found.iteration == found.bubble.makespan == 21 * SECOND
    other = estimated(plan_of([SECONDS_WORTH, 0, 0, 0], microbatches=4))
    assert other.iteration == 22 * SECOND + TWO_STEPS


def test_stages_on_the_same_links_share_them() -> None:
    """Stage 1 sends 24 GB from 7 s on; at 9 s it has 8 GB left, and stage 0 has as many."""
    found = estimated(plan_of([SECONDS_WORTH, 3 * SECONDS_WORTH]))
    reductions = found.iteration_parts.reductions
    ends = [one.span.end for one in reductions if one.span is not None]
    expected = 11 * SECOND + TWO_STEPS
    assert ends == [expected, expected]
    for one in reductions:
        assert one.planned.priced is not None
        assert one.planned.priced.traffic.least_seconds_per_byte == Fraction(1, 8 * 10**9)


def test_chunks_of_a_rank_reduce_one_after_another_beside_its_operations() -> None:
    plan = plan_of([SECONDS_WORTH] * 4, schedule="interleaved_1f1b", chunks=2)
    stages = estimated(plan, latency=False)
    waiting = GradientReduction(overlap=ReductionOverlap.NONE)
    none = estimated(replace(plan, training=trained(waiting)), latency=False)
    assert stages.bubble.makespan == none.bubble.makespan
    for rank, (beside, after) in enumerate(zip(ranks(stages), ranks(none), strict=True)):
        # Stages 0 and 2 live on rank 0, stages 1 and 3 on rank 1.
        assert after.exposed_reduction >= 2 * SECOND
        assert SECOND <= beside.exposed_reduction < after.exposed_reduction, rank


def test_buckets_begin_within_the_last_backward() -> None:
    """The backward of 2 s makes a bucket of a quarter each 0.5 s, which takes 0.25 s to reduce."""
    bucketed = GradientReduction(
        overlap=ReductionOverlap.BUCKETS, bucket_bytes=2 * SECONDS_WORTH // 4
    )
    found = estimated(plan_of([SECONDS_WORTH, 0], training=trained(bucketed)), latency=False)
    first = ranks(found)[0]
    assert first.reduction is not None
    assert first.reduction.start == 7 * SECOND + SECOND // 2
    assert first.exposed_reduction == SECOND // 4
    assert found.iteration_parts.reductions[0].buckets == 4


def test_buckets_become_ready_layer_by_layer_where_layers_have_times() -> None:
    """Backwards of 0.5, 0 and 1.5 s for 1, 2 and 1 GB, the last layer's first; of all 2 s.

    A bucket of 1 GB is complete with the last layer, the next two with the second one at the same
    instant, the last one with the first layer.
    """
    simulated = estimated(plan_of([SECONDS_WORTH, 0]), latency=False).simulated
    gigabyte = 10**9
    task = Task(
        stage=0,
        pipeline_ranks=(0,),
        groups=((0, 2),),
        message_bytes=4 * gigabyte,
        latency_picoseconds=0,
        seconds_per_byte={"nic": Fraction(1, 10 * gigabyte)},
        layers=((gigabyte, SECOND // 2), (2 * gigabyte, 0), (gigabyte, 3 * SECOND // 2)),
    )
    sizes = SizeClasses(2)
    found = run_beside(simulated.timeline, sizes, [task], ReductionOverlap.BUCKETS, gigabyte)
    # Its backward is from 7 to 9 s: three buckets of 0.1 s from 8.5 s on, the last from 9 s on.
    assert found == [(Span(8 * SECOND + SECOND // 2, 9 * SECOND + SECOND // 10), 4)]
    evenly = replace(task, layers=())
    found = run_beside(simulated.timeline, sizes, [evenly], ReductionOverlap.BUCKETS, gigabyte)
    assert found == [(Span(7 * SECOND + SECOND // 2, 9 * SECOND + SECOND // 10), 4)]


def test_copies_are_exchanged_after_all_their_stages_are_reduced() -> None:
    """The last stage is complete at 7 s, the first one at 9 s and reduced at 10 s."""
    timeline = estimated(plan_of([SECONDS_WORTH] * 2)).simulated.timeline
    ranks_of = CopyRanks((0, 1), (None, None), (), SECOND, 2 * SECOND)
    tied = TiedCopies(("w",), (0, 1), (0, 1), 5, 5, 10, 10, (ranks_of,), SECOND, 2 * SECOND)
    unknown = replace(tied, picoseconds=None)
    stages = ReductionOverlap.STAGES
    found = exchange_copies(timeline, [tied, unknown, tied], {0: 10 * SECOND}, stages)
    assert found == (
        Span(10 * SECOND, 12 * SECOND),
        None,
        Span(12 * SECOND, 14 * SECOND),
    )
    assert exchange_copies(timeline, [tied], {}, stages) == (Span(9 * SECOND, 11 * SECOND),)


def test_sharded_optimizers_scatter_step_and_gather() -> None:
    """A reduce-scatter sends half of 8 GB, so does an all-gather; each is one step of a ring."""
    training = trained(None, OptimizerSharding.OPTIMIZER, step_seconds=(0.25, 0.5))
    found = estimated(plan_of([SECONDS_WORTH, 0], training=training))
    first, last = ranks(found)
    half = SECOND // 2 + LATENCY
    assert (first.exposed_reduction, first.step, first.exposed_gather) == (half, SECOND // 4, half)
    assert found.iteration == 9 * SECOND + 2 * half + SECOND // 4
    # Without parameters nothing is moved, and the time that the plan gives counts all the same.
    assert (last.reduction, last.step, last.end) == (None, SECOND // 2, 7 * SECOND + SECOND // 2)


def test_weights_that_stay_sharded_are_not_gathered_after_the_step() -> None:
    training = trained(None, OptimizerSharding.PARAMETERS)
    found = estimated(plan_of([SECONDS_WORTH, 0], training=training))
    assert found.iteration == 9 * SECOND + SECOND // 2 + LATENCY
    assert "sharded_each_microbatch" in codes(found)


def test_a_tree_of_two_ranks_sends_what_a_ring_of_two_does() -> None:
    ring = estimated(plan_of([SECONDS_WORTH] * 2))
    tree = GradientReduction(algorithm=ReductionAlgorithm.TREE)
    assert estimated(plan_of([SECONDS_WORTH] * 2, training=trained(tree))).iteration == (
        ring.iteration
    )


def test_a_step_moves_each_number_once() -> None:
    """Adam in bf16: gradient 2, weight 2, master copy 4 and moments 8, the last two there and back.

    2 + 2 + 8 + 16 = 28 bytes a parameter.
    """
    plan = plan_of([10**9, 10**9], data=1, training=Training(Optimizer.ADAM, DType.BF16))
    found = estimated(plan, with_memory(world(plan), 14e9))
    assert [rank.step for rank in ranks(found)] == [2 * SECOND] * 2
    assert found.iteration == 11 * SECOND
    assert codes(found) == {"gradient_norm"}
    sharded = replace(
        plan_of([10**9, 10**9]),
        training=Training(
            Optimizer.ADAM, DType.BF16, optimizer_sharding=OptimizerSharding.OPTIMIZER
        ),
    )
    halved = estimated(sharded, with_memory(world(sharded), 14e9))
    assert [rank.step for rank in ranks(halved)] == [SECOND] * 2


def test_two_copies_of_a_stage_reduce_between_their_ranks() -> None:
    """Chimera runs each stage on two ranks, which are two replicas of it without any other."""
    plan = plan_of([SECONDS_WORTH] * 2, schedule="chimera", data=1)
    found = estimated(plan)
    groups = [one.planned.part.groups for one in found.iteration_parts.reductions]
    assert groups == [((0, 1),)] * 2
    # Each rank ends stage 1 at 4 s and stage 0 at 6 s; 8 GB go each way over a switch of 100 GB/s,
    # two steps of two links of 2 us.
    spans = [one.span for one in found.iteration_parts.reductions]
    takes = SECOND * 8 // 100 + 8 * 10**6
    assert spans == [
        Span(6 * SECOND, 6 * SECOND + takes),
        Span(4 * SECOND, 4 * SECOND + takes),
    ]
    assert found.iteration == 6 * SECOND + takes
    assert "two_copies_reduction" not in codes(found)


def test_tensor_ranks_reduce_their_shares_at_once() -> None:
    """Two groups of half the bytes over the one NIC of a host take as long as one of all."""
    found = estimated(plan_of([SECONDS_WORTH] * 2, tensor=2))
    (first, _) = found.iteration_parts.reductions
    assert first.planned.part.groups == ((0, 4), (1, 5))
    assert first.planned.part.held.gradient_bytes == SECONDS_WORTH
    assert found.iteration == 10 * SECOND + TWO_STEPS


def test_given_times_stand_in_place_of_links() -> None:
    given = GradientReduction(seconds=(0.5, 3.0))
    plan = plan_of([None, None], topology=False, training=trained(given))
    found = estimated(plan)
    assert found.iteration == 10 * SECOND
    assert [rank.exposed_reduction for rank in ranks(found)] == [SECOND // 2, 3 * SECOND]
    assert [one.name for one in found.lower_bounds][-1] == "stage_with_reduction"


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (plan_of([1, 1], topology=False), "no topology"),
        (plan_of([None, None]), "parameters"),
        (plan_of([1, None]), "the parameters of 1 stage are not given"),
    ],
)
def test_what_is_unknown_is_named_and_not_zero(plan: Plan, why: str) -> None:
    found = estimated(plan)
    said = {one.code: one.detail for one in found.iteration_parts.not_represented}
    assert why in said["data_parallel_reduction"]
    assert "optimizer_step" in said


@pytest.mark.parametrize(
    ("parameters", "made", "path"),
    [
        (2**53 - 1, None, ("training",)),
        (2**51, None, ("topology",)),
        (2**51, 1e3, ("training",)),
    ],
)
def test_what_is_too_large_to_count_is_refused(
    parameters: int, made: float | None, path: Path
) -> None:
    """Bytes beyond 2**53 - 1 of a reduction, and a reduction or a step of more than 1e5 s."""
    plan = plan_of([parameters, 0], data=2 if made is None else 1)
    cluster = with_memory(world(plan), made or 1e15)
    found = refusals(lambda: estimated(plan, cluster))
    assert found == [(FaultCode.OUT_OF_RANGE, path)]


def test_no_bytes_take_no_time() -> None:
    found = estimated(plan_of([0, 0]))
    assert found.iteration == found.bubble.makespan
    assert found.iteration_parts.reductions == ()


def test_a_pipeline_that_is_never_drained_tells_the_times_and_adds_none() -> None:
    found = estimated(plan_of([SECONDS_WORTH] * 2, schedule="pipedream", microbatches=8))
    assert found.iteration_parts.ranks == ()
    (first, _) = found.iteration_parts.reductions
    assert first.span is None
    assert first.planned.priced is not None
    assert "asynchronous_updates" in codes(found)
