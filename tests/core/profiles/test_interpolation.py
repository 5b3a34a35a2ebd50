"""Costs between measured shapes: by hand, against another interpolation, and what is refused."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from service.core.errors import Fault, FaultCode
from service.core.profiles.interpolation import Approximation, Bracket, ErrorSource
from service.core.profiles.measurement import Measurement, Point, Recompute
from service.core.profiles.profile import Profile, build_profile
from service.core.profiles.provenance import Provenance

MILLISECOND = 10**9


def measured(size: int, length: int | None, forward: float, **fields: object) -> Measurement:
    made = Measurement("l", Point(size, length), forward / 1000, 2 * forward / 1000)
    return replace(made, **fields)  # type: ignore[arg-type]


def profile(*measurements: Measurement) -> Profile:
    return build_profile(None, None, measurements)


def near(of: Profile, point: Point, *, beyond: bool = False) -> Approximation:
    found = of.near("l", point, beyond=beyond)
    assert isinstance(found, Approximation)
    return found


def test_between_two_sizes_by_hand() -> None:
    """At 3 of 2 and 6: three quarters of 4 ms and a quarter of 8."""
    costs = profile(
        measured(2, 8, 4, saved_activation_bytes=100, samples=9, relative_deviation=0.1),
        measured(6, 8, 8, saved_activation_bytes=301, samples=5, relative_deviation=0.3),
    )
    found = near(costs, Point(3, 8))
    assert found.brackets == (Bracket("microbatch_size", 2, 6),)
    assert found.cost.forward_picoseconds == 5 * MILLISECOND
    assert found.cost.backward_picoseconds == 10 * MILLISECOND
    assert found.cost.saved_activation_bytes == 150
    assert found.cost.samples == 5
    # (3 x 4 x 0.1 + 1 x 8 x 0.3) / 20, whatever the two deviations have to do with one another.
    assert found.cost.relative_deviation == pytest.approx(3.6 / 20)
    assert found.cost.provenance is Provenance.INTERPOLATED
    # Without a third point: the work lies between 12 and 24, and 15 stands in for it.
    assert found.source is ErrorSource.ENDS
    assert found.miss == pytest.approx(9 / 15)


def test_a_measured_point_beside_the_bracket_tells_the_error() -> None:
    """Squares at 1, 2, 4: without 2 the line from 1 to 4 says 6 in place of 4."""
    costs = profile(*(measured(size, 8, size**2) for size in (1, 2, 4)))
    found = near(costs, Point(3, 8))
    assert found.cost.forward_picoseconds == 10 * MILLISECOND
    assert found.source is ErrorSource.LEFT_OUT
    assert found.miss == pytest.approx(0.5)
    assert found.cost.relative_error == found.miss


def test_what_is_straight_is_met_and_its_error_is_none() -> None:
    costs = profile(*(measured(2, length, 1 + length) for length in (8, 16, 64)))
    found = near(costs, Point(2, 40))
    assert found.brackets == (Bracket("sequence_length", 16, 64),)
    assert found.cost.forward_picoseconds == 41 * MILLISECOND
    assert found.miss == 0


def test_over_both_variables_by_hand() -> None:
    """At the middle of the four corners their mean: (1 + 3 + 5 + 11) / 4."""
    corners = {(1, 8): 1, (1, 16): 3, (3, 8): 5, (3, 16): 11}
    costs = profile(*(measured(*shape, forward) for shape, forward in corners.items()))
    found = near(costs, Point(2, 12))
    assert found.cost.forward_picoseconds == 5 * MILLISECOND
    assert [bracket.variable for bracket in found.brackets] == [
        "microbatch_size",
        "sequence_length",
    ]


def test_a_grid_is_met_as_by_another_interpolation() -> None:
    """Numpy's, first along the sizes of each length and then along the lengths."""
    sizes, lengths = (1, 2, 4, 7), (128, 256, 1024)
    random = np.random.default_rng(7)
    table = random.integers(1, 1000, (len(sizes), len(lengths)))
    costs = profile(
        *(
            measured(size, length, float(table[i, j]))
            for (i, size), (j, length) in product(enumerate(sizes), enumerate(lengths))
        )
    )
    for size, length in product((1, 2, 3, 4, 5, 6, 7), (128, 200, 256, 1000, 1024)):
        found = costs.near("l", Point(size, length))
        if size in sizes and length in lengths:
            continue
        assert isinstance(found, Approximation)
        at_lengths = [np.interp(size, sizes, table[:, j]) for j in range(len(lengths))]
        expected = float(np.interp(length, lengths, at_lengths))
        assert found.cost.forward_picoseconds == pytest.approx(expected * MILLISECOND, abs=1)


@pytest.mark.parametrize(
    "point",
    [
        Point(5, 8),  # beyond the sizes
        Point(1, 8),
        Point(2, 32),  # beyond the lengths
        Point(3, 32),
        Point(3, None),  # a length that was not stated lies beside no other
        Point(3, 8, tensor_parallel=2),
        Point(3, 8, recompute=Recompute.FULL),
    ],
)
def test_beyond_what_was_measured_there_is_nothing(point: Point) -> None:
    costs = profile(*(measured(*shape, 1) for shape in product((2, 4), (8, 16))))
    assert costs.near("l", point) is None


def test_where_asked_for_the_nearest_line_is_drawn_on() -> None:
    """3, 4, 8 ms at 1, 2, 4 go on with 2 ms each; without 8 the line to it would have said 6."""
    costs = profile(*(measured(size, None, ms) for size, ms in ((1, 3), (2, 4), (4, 8))))
    found = near(costs, Point(8), beyond=True)
    assert found.brackets == (Bracket("microbatch_size", 2, 4),)
    assert found.cost.forward_picoseconds == 16 * MILLISECOND
    assert found.cost.provenance is Provenance.EXTRAPOLATED
    assert found.source is ErrorSource.LEFT_OUT
    assert found.miss == pytest.approx(0.25)
    assert found.cost.relative_error is None
    inside = near(costs, Point(3), beyond=True)
    assert inside.cost.provenance is Provenance.INTERPOLATED


def test_a_line_that_leads_below_zero_is_no_cost() -> None:
    costs = profile(measured(4, None, 1), measured(8, None, 5))
    assert costs.near("l", Point(2), beyond=True) is None


def test_one_point_is_never_scaled() -> None:
    assert profile(measured(4, 8, 1)).near("l", Point(8, 8), beyond=True) is None


def test_what_one_end_does_not_say_is_unknown() -> None:
    costs = profile(
        measured(2, 8, 1, saved_activation_bytes=4),
        replace(measured(4, 8, 2), backward_seconds=None),
    )
    cost = near(costs, Point(3, 8)).cost
    assert (cost.backward_picoseconds, cost.saved_activation_bytes) == (None, None)


def test_halves_add_up_to_the_backward() -> None:
    """Each half way between 1 and 2 ps, and 2 and 3 ps: rounded up each, and so 5 in all."""
    rows = [
        replace(
            measured(size, 8, 1),
            backward_seconds=None,
            backward_input_seconds=of_inputs * 1e-12,
            backward_weight_seconds=of_weights * 1e-12,
        )
        for size, of_inputs, of_weights in ((1, 1, 2), (3, 2, 3))
    ]
    cost = near(profile(*rows), Point(2, 8)).cost
    assert (cost.backward_input_picoseconds, cost.backward_weight_picoseconds) == (2, 3)
    assert cost.backward_picoseconds == 5


def test_the_points_of_the_name_go_before_those_of_a_pattern() -> None:
    pattern = [replace(measured(size, 8, 100), layer="*") for size in (2, 4)]
    costs = profile(measured(1, 8, 1), measured(5, 8, 5), *pattern)
    assert near(costs, Point(3, 8)).cost.forward_picoseconds == 3 * MILLISECOND
    alone = profile(measured(1, 8, 1), *pattern)
    assert near(alone, Point(3, 8)).cost.forward_picoseconds == 100 * MILLISECOND


def test_two_patterns_may_not_both_stand_in() -> None:
    rows = [replace(measured(size, 8, 1), layer=name) for size in (2, 4) for name in ("*", "?")]
    found = profile(*rows).near("l", Point(3, 8))
    assert isinstance(found, Fault)
    assert found.code is FaultCode.INCONSISTENT
