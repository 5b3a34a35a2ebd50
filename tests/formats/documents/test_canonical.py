"""One byte form for equal documents, and digests that know their kind."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode
from service.formats.documents.canonical import canonical_bytes, digest
from service.formats.documents.costs import CostsDocument, StageDocument
from service.formats.documents.plan import (
    ParallelismDocument,
    PlanDocument,
    WorkloadDocument,
)
from service.formats.documents.schedule import ScheduleDocument, ScheduleKind
from tests.core.refusals import refusals

PLAN = b"""
{"workload": {"microbatches": 8}, "schedule": {"kind": "1f1b"},
 "costs": {"stages": [{"forward_seconds": 1, "backward_seconds": 0.50}]}}
"""


def plan(content: bytes) -> PlanDocument:
    return msgspec.json.decode(content, type=PlanDocument)


def test_keys_are_sorted_and_numbers_have_one_spelling() -> None:
    assert canonical_bytes(plan(PLAN)) == (
        b'{"costs":{"stages":[{"backward_seconds":0.5,"forward_seconds":1.0}]},'
        b'"schedule":{"kind":"1f1b"},"workload":{"microbatches":8}}'
    )


def test_the_order_of_keys_and_white_space_do_not_matter() -> None:
    other = b"""{"schedule":{"kind":"1f1b"},"costs":{"stages":
      [{"backward_seconds":5e-1,"forward_seconds":1.0}]},"workload":{"microbatches":8}}"""
    assert canonical_bytes(plan(PLAN)) == canonical_bytes(plan(other))


def test_no_default_is_written_and_a_stated_one_stays() -> None:
    """A default may change with the model version; what a document states may not."""
    stated = plan(PLAN.replace(b'"kind"', b'"chunks_per_rank": 1, "kind"'))
    assert b"chunks_per_rank" not in canonical_bytes(plan(PLAN))
    assert b'"chunks_per_rank":1' in canonical_bytes(stated)


@pytest.mark.parametrize("number", [-0.0, float("nan"), float("inf")])
def test_numbers_with_two_spellings_or_none_are_refused(number: float) -> None:
    stage = StageDocument(forward_seconds=number, backward_seconds=1.0)
    document = PlanDocument(
        costs=CostsDocument(stages=[stage, stage]),
        workload=WorkloadDocument(microbatches=1),
        schedule=ScheduleDocument(kind=ScheduleKind.GPIPE),
    )
    assert refusals(lambda: canonical_bytes(document)) == [
        (FaultCode.OUT_OF_RANGE, ("costs", "stages", 0, "forward_seconds")),
        (FaultCode.OUT_OF_RANGE, ("costs", "stages", 1, "forward_seconds")),
    ]


def test_minus_zero_passes_the_bounds_and_is_caught_here() -> None:
    document = plan(PLAN.replace(b'"forward_seconds": 1', b'"forward_seconds": -0.0'))
    assert refusals(lambda: canonical_bytes(document)) == [
        (FaultCode.OUT_OF_RANGE, ("costs", "stages", 0, "forward_seconds"))
    ]


def test_a_digest_knows_its_kind() -> None:
    # sha256 of "plans", a zero byte and "{}".
    assert digest("plans", b"{}") == (
        "sha256:d27043637fd32730b112683b82699cd266b24f5b60ee394a4f3c19e875c0aea4"
    )
    assert digest("plans", b"{}") != digest("models", b"{}")
    assert digest("plan", b"s\0{}") != digest("plans", b"{}")


@given(
    seconds=st.lists(st.floats(0, 1e5), min_size=1, max_size=5),
    tensor=st.none() | st.integers(1, 8),
)
def test_reading_canonical_bytes_gives_the_document_back(
    seconds: list[float], tensor: int | None
) -> None:
    document = PlanDocument(
        costs=CostsDocument(stages=[StageDocument(forward_seconds=abs(time)) for time in seconds]),
        workload=WorkloadDocument(microbatches=1),
        schedule=ScheduleDocument(kind=ScheduleKind.FORWARD_ONLY),
        parallelism=msgspec.UNSET if tensor is None else ParallelismDocument(tensor=tensor),
    )
    content = canonical_bytes(document)
    assert plan(content) == document
    assert canonical_bytes(plan(content)) == content
