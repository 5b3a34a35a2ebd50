"""Batch sizes: what is held fixed, what follows, and what does not divide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode, Path
from service.core.plans.plan import Degrees, GivenStage, Plan, Workload
from service.core.plans.workload import Batch, resolve_batch, size_classes
from tests.core.plans.worlds import given_plan, profiled_plan
from tests.core.refusals import refusal_text, refusals


def plan(workload: Workload, degrees: Degrees | None = None, *, profiled: bool = False) -> Plan:
    degrees = degrees or Degrees(1)
    if profiled:
        return profiled_plan(None, degrees=degrees, workload=workload)
    return given_plan(GivenStage(1.0), degrees=degrees, workload=workload)


def batch_of(plan: Plan) -> Batch:
    return resolve_batch(plan, size_classes(plan))


@given(size=st.integers(1, 64), microbatches=st.integers(1, 64), data=st.integers(1, 16))
def test_either_size_gives_the_other(size: int, microbatches: int, data: int) -> None:
    whole = size * microbatches * data
    degrees = Degrees(1, data=data)
    fixed = batch_of(plan(Workload(microbatches, microbatch_size=size), degrees))
    assert fixed == Batch(size, whole, "microbatch_size", None, None)
    follows = batch_of(plan(Workload(microbatches, global_batch_size=whole), degrees))
    assert follows == Batch(size, whole, "global_batch_size", None, None)


def test_inline_costs_need_no_size() -> None:
    assert batch_of(plan(Workload(8))) == Batch(None, None, None, None, None)


def test_a_context_rank_holds_its_share_of_a_sequence() -> None:
    batch = batch_of(plan(Workload(8, sequence_length=96), Degrees(1, context=4)))
    assert (batch.sequence_length, batch.rank_sequence_length) == (96, 24)
    several = Workload(3, microbatch_sequence_lengths=(96, 32, 96))
    batch = batch_of(plan(several, Degrees(1, context=4)))
    assert (batch.sequence_length, batch.rank_sequence_length) == ((96, 32), (24, 8))


def test_lengths_that_are_all_the_same_are_one() -> None:
    listed = batch_of(plan(Workload(3, microbatch_sequence_lengths=(96, 96, 96))))
    assert listed == batch_of(plan(Workload(3, sequence_length=96)))


@pytest.mark.parametrize(
    ("workload", "degrees", "profiled", "found"),
    [
        (
            Workload(8, microbatch_size=1, global_batch_size=8),
            Degrees(1),
            False,
            [(FaultCode.EXCLUSIVE_FIELDS, ("workload",))],
        ),
        (
            Workload(8),
            Degrees(1),
            True,
            [(FaultCode.MISSING_FIELD, ("workload", "microbatch_size"))],
        ),
        (
            Workload(8, global_batch_size=36),
            Degrees(1, data=2),
            False,
            [(FaultCode.INDIVISIBLE, ("workload", "global_batch_size"))],
        ),
        (
            Workload(8, global_batch_size=4),
            Degrees(1),
            False,
            [(FaultCode.INDIVISIBLE, ("workload", "global_batch_size"))],
        ),
        (
            Workload(8, sequence_length=10),
            Degrees(1, context=4),
            False,
            [(FaultCode.INDIVISIBLE, ("parallelism", "context"))],
        ),
        (
            Workload(8, sequence_length=12),
            Degrees(1, tensor=4, context=4, sequence_parallel=True),
            False,
            [(FaultCode.INDIVISIBLE, ("parallelism", "tensor"))],
        ),
        (
            Workload(2, microbatch_sequence_lengths=(12, 10)),
            Degrees(1, context=4),
            False,
            [(FaultCode.INDIVISIBLE, ("parallelism", "context"))],
        ),
        (
            Workload(2, microbatch_sequence_lengths=(12, 10, 8)),
            Degrees(1),
            False,
            [(FaultCode.WRONG_LENGTH, ("workload", "microbatch_sequence_lengths"))],
        ),
        (
            Workload(2, sequence_length=12, microbatch_sequence_lengths=(12, 12)),
            Degrees(1),
            False,
            [(FaultCode.EXCLUSIVE_FIELDS, ("workload", "microbatch_sequence_lengths"))],
        ),
        (
            Workload(8),
            Degrees(1, context=2),
            True,
            [
                (FaultCode.MISSING_FIELD, ("workload", "microbatch_size")),
                (FaultCode.MISSING_FIELD, ("workload", "sequence_length")),
            ],
        ),
    ],
)
def test_sizes_that_do_not_work_out(
    workload: Workload, degrees: Degrees, profiled: bool, found: list[tuple[FaultCode, Path]]
) -> None:
    assert refusals(lambda: batch_of(plan(workload, degrees, profiled=profiled))) == found


def test_lengths_of_another_number_point_to_the_field_that_is_one_for_all() -> None:
    wrong = plan(Workload(8, microbatch_sequence_lengths=(2048,)), Degrees(1))
    text = refusal_text(lambda: batch_of(wrong))
    assert "one number for each of 8 microbatches, or sequence_length in its place" in text
    both = plan(Workload(2, sequence_length=9, microbatch_sequence_lengths=(9, 9)), Degrees(1))
    assert "a patch that adds one sets the other to null" in refusal_text(lambda: batch_of(both))


def test_an_indivisible_batch_names_both_sides() -> None:
    text = refusal_text(
        lambda: batch_of(plan(Workload(8, global_batch_size=36), Degrees(1, data=2)))
    )
    assert "36" in text
    assert "microbatches 8 x data 2" in text
