"""Ranks and coordinates: a bijection whatever the order."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode, Path
from service.core.plans.placement import MAX_RANKS, check_order, layout, place_ranks
from service.core.plans.plan import Degrees, Dimension, Placement
from tests.core.refusals import refusal_text, refusals

DEGREES = st.builds(
    Degrees, st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)
)
ORDERS = st.sampled_from(list(permutations(Dimension)))


def test_the_default_order_puts_tensor_innermost_and_pipeline_outermost() -> None:
    placed = place_ranks(layout(Placement(), Degrees(2, tensor=2, data=2)), None)
    table = [
        (rank.at(Dimension.PIPELINE), rank.at(Dimension.DATA), rank.at(Dimension.TENSOR))
        for rank in placed
    ]
    assert table == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
        (0, 1, 1),
        (1, 0, 0),
        (1, 0, 1),
        (1, 1, 0),
        (1, 1, 1),
    ]
    assert all(rank.device is None for rank in placed)


def test_the_ranks_of_a_pipeline_rank_have_tensor_fastest_whatever_the_order() -> None:
    degrees = Degrees(2, tensor=2, data=2)
    assert layout(Placement(), degrees).ranks_at(1) == [4, 5, 6, 7]
    data_first = (Dimension.DATA, Dimension.TENSOR, Dimension.PIPELINE)
    assert layout(Placement(data_first), degrees).ranks_at(1) == [4, 6, 5, 7]


def test_another_order_moves_the_ranks() -> None:
    order = (Dimension.PIPELINE, Dimension.TENSOR)
    placed = place_ranks(layout(Placement(order), Degrees(2, tensor=2)), ["a", "b", "c", "d"])
    assert [(r.at(Dimension.TENSOR), r.at(Dimension.PIPELINE), r.device) for r in placed] == [
        (0, 0, "a"),
        (0, 1, "b"),
        (1, 0, "c"),
        (1, 1, "d"),
    ]


@given(degrees=DEGREES, order=ORDERS)
def test_each_rank_has_its_own_coordinates_and_each_coordinate_a_rank(
    degrees: Degrees, order: tuple[Dimension, ...]
) -> None:
    placed = place_ranks(layout(Placement(order), degrees), None)
    assert [rank.rank for rank in placed] == list(range(degrees.world_size))
    assert len({rank.coordinates for rank in placed}) == degrees.world_size
    for rank in placed:
        assert all(0 <= at < degrees.of(dimension) for dimension, at in rank.coordinates)
        strides = 1
        number = 0
        for dimension in order:
            number += rank.at(dimension) * strides
            strides *= degrees.of(dimension)
        assert number == rank.rank


@given(degrees=DEGREES, order=ORDERS)
def test_pairs_of_two_pipeline_ranks_differ_in_nothing_else(
    degrees: Degrees, order: tuple[Dimension, ...]
) -> None:
    ranks = layout(Placement(order), degrees)
    placed = place_ranks(ranks, None)
    seen: list[int] = []
    for pipeline in range(degrees.pipeline):
        here = ranks.ranks_at(pipeline)
        seen += here
        for first, other in zip(ranks.ranks_at(0), here, strict=True):
            assert placed[other].at(Dimension.PIPELINE) == pipeline
            for dimension in (Dimension.TENSOR, Dimension.CONTEXT, Dimension.DATA):
                assert placed[first].at(dimension) == placed[other].at(dimension)
    assert sorted(seen) == list(range(degrees.world_size))


@pytest.mark.parametrize(
    ("order", "degrees", "found"),
    [
        ((Dimension.PIPELINE,), Degrees(4), []),
        ((Dimension.TENSOR,), Degrees(1, tensor=2), []),
        (
            (Dimension.PIPELINE, Dimension.PIPELINE),
            Degrees(4),
            [(FaultCode.DUPLICATE_NAME, ("placement", "order"))],
        ),
        (
            (Dimension.TENSOR,),
            Degrees(4, tensor=2, data=2),
            [(FaultCode.MISSING_FIELD, ("placement", "order"))] * 2,
        ),
        (
            tuple(Dimension),
            Degrees(4096, 4096, 4096, 4096),
            [(FaultCode.WORK_BUDGET, ("parallelism",))],
        ),
        (tuple(Dimension), Degrees(MAX_RANKS // 8, 8), []),
    ],
)
def test_an_order_names_each_dimension_once(
    order: tuple[Dimension, ...], degrees: Degrees, found: list[tuple[FaultCode, Path]]
) -> None:
    told = [(fault.code, fault.path) for fault in check_order(Placement(order), degrees)]
    assert told == found


def test_too_few_devices_are_counted() -> None:
    ranks = layout(Placement(), Degrees(4, tensor=2))
    assert refusals(lambda: place_ranks(ranks, ["a"] * 7)) == [
        (FaultCode.TOO_FEW_DEVICES, ("placement", "devices"))
    ]
    text = refusal_text(lambda: place_ranks(ranks, ["a"] * 7))
    assert "8 ranks" in text
    assert "has 7" in text
    assert len(place_ranks(ranks, [str(number) for number in range(9)])) == 8
