"""Three ways to write a partition, and what each can get wrong."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode, Path
from service.core.models.graph import Layer, RecordedSize, Tensor, build_model
from service.core.plans.partition import assign_layers, check_partition
from service.core.plans.plan import Partition
from tests.core.plans.worlds import chain
from tests.core.refusals import refusal_text, refusals


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_the_three_forms_say_the_same(counts: list[int]) -> None:
    stages = len(counts)
    model = chain(sum(counts))
    starts = [sum(counts[:stage]) for stage in range(stages + 1)]
    forms = [
        Partition(layers_per_stage=tuple(counts)),
        Partition(cuts=tuple(starts[1:-1])),
        Partition(
            stages=tuple(
                tuple(f"l{i}" for i in reversed(range(start, end)))
                for start, end in pairwise(starts)
            )
        ),
    ]
    expected = tuple(stage for stage, count in enumerate(counts) for _ in range(count))
    for form in forms:
        assert check_partition(form, stages) == []
        assert assign_layers(form, model, stages) == expected


@pytest.mark.parametrize(
    ("partition", "found"),
    [
        (Partition(), [(FaultCode.MISSING_FIELD, ("partition",))]),
        (
            Partition(cuts=(1,), layers_per_stage=(1, 1)),
            [(FaultCode.EXCLUSIVE_FIELDS, ("partition",))],
        ),
        (
            Partition(layers_per_stage=(3, 0, 1)),
            [
                (FaultCode.WRONG_LENGTH, ("partition", "layers_per_stage")),
                (FaultCode.EMPTY_STAGE, ("partition", "layers_per_stage", 1)),
            ],
        ),
        (
            Partition(stages=(("l0",), ())),
            [(FaultCode.EMPTY_STAGE, ("partition", "stages", 1))],
        ),
        (Partition(cuts=()), [(FaultCode.WRONG_LENGTH, ("partition", "cuts"))]),
        (Partition(cuts=(0,)), [(FaultCode.EMPTY_STAGE, ("partition", "cuts", 0))]),
        (
            Partition(cuts=(2, 2)),
            [
                (FaultCode.WRONG_LENGTH, ("partition", "cuts")),
                (FaultCode.EMPTY_STAGE, ("partition", "cuts", 1)),
            ],
        ),
    ],
)
def test_what_is_wrong_for_two_stages_of_any_model(
    partition: Partition, found: list[tuple[FaultCode, Path]]
) -> None:
    assert [(fault.code, fault.path) for fault in check_partition(partition, 2)] == found


@pytest.mark.parametrize(
    ("partition", "stages", "found"),
    [
        (
            Partition(layers_per_stage=(2, 3)),
            2,
            [(FaultCode.WRONG_LENGTH, ("partition", "layers_per_stage"))],
        ),
        (Partition(cuts=(4,)), 2, [(FaultCode.EMPTY_STAGE, ("partition", "cuts", 0))]),
        (
            Partition(layers_per_stage=(1,) * 5),
            5,
            [(FaultCode.TOO_FEW_LAYERS, ("parallelism", "pipeline"))],
        ),
        (
            Partition(stages=(("l0", "l1", "l9"), ("l1", "l3"))),
            2,
            [
                (FaultCode.UNKNOWN_NAME, ("partition", "stages", 0, 2)),
                (FaultCode.DUPLICATE_NAME, ("partition", "stages", 1, 0)),
                (FaultCode.MISSING_FIELD, ("partition", "stages")),
            ],
        ),
        (
            Partition(stages=(("l0", "l2"), ("l1", "l3"))),
            2,
            [(FaultCode.INCONSISTENT, ("partition",))],
        ),
    ],
)
def test_what_is_wrong_for_a_chain_of_four_layers(
    partition: Partition, stages: int, found: list[tuple[FaultCode, Path]]
) -> None:
    assert refusals(lambda: assign_layers(partition, chain(4), stages)) == found


def test_branches_may_stand_on_any_down_set() -> None:
    model = build_model(
        [Layer(name, "x") for name in ("in", "left", "right", "out")],
        [
            Tensor("a", "in", ("left", "right"), recorded=RecordedSize(1, 1)),
            Tensor("b", "left", ("out",), recorded=RecordedSize(1, 1)),
            Tensor("c", "right", ("out",), recorded=RecordedSize(1, 1)),
        ],
    )
    across = Partition(stages=(("in", "right"), ("left", "out")))
    assert assign_layers(across, model, 2) == (0, 1, 0, 1)


def test_tied_layers_stand_on_one_stage() -> None:
    model = chain(4, tied=(0, 3))
    text = refusal_text(lambda: assign_layers(Partition(cuts=(2,)), model, 2))
    assert "'l0' on stage 0" in text
    assert "'l3' on stage 1" in text
    assert assign_layers(Partition(cuts=(2,)), chain(4, tied=(2, 3)), 2) == (0, 0, 1, 1)
