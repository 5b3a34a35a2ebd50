"""Products of experts and packing, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import InvalidInput
from service.core.models.dtypes import DType
from service.core.moe.compute import (
    Experts,
    Packing,
    Products,
    expert_times,
    least_expert_times,
)
from service.core.moe.settings import Payload, RowsSeconds
from service.core.profiles.roofline import Roofline

US = 10**6

# 6 x 1,000 x 500 FLOPs a row and 3 MB of weights: a row takes 3 us, reading 30 us.
EXPERTS = Experts(hidden_size=1_000, width=500, gated=True)
RATES = Roofline(flops_per_second=1e12, bytes_per_second=1e11)


def times(products: Products, rows: list[int], ranks: list[int], count: int) -> list[int]:
    found = expert_times(EXPERTS, products, np.array(rows), np.array(ranks, dtype=np.int32), count)
    taken: list[int] = found.forward_picoseconds.tolist()
    return taken


def test_rates_by_hand() -> None:
    """Rank 0 has 100 rows and 2, rank 1 has 20 and none, rank 2 an expert without rows, 3 none."""
    products = Products(sustained=RATES, launch_picoseconds=5 * US)
    found = times(products, [100, 2, 20, 0, 0], [0, 0, 1, 1, 2], 4)
    assert found == [(300 + 30 + 5) * US, (60 + 5) * US, 5 * US, 0]


def test_plain_experts_have_two_matrices() -> None:
    plain = Experts(1_000, 500, gated=False)
    assert (EXPERTS.row_flops, EXPERTS.weight_bytes) == (3_000_000, 3_000_000)
    assert (plain.row_flops, plain.weight_bytes) == (2_000_000, 2_000_000)
    assert Experts(1_000, 500, gated=True, dtype=DType.FP8).weight_bytes == 1_500_000


def test_rows_are_rounded_up_to_tiles() -> None:
    """One row more than a tile is two tiles, and each expert has its own."""
    products = Products(sustained=RATES, tile_rows=128)
    found = times(products, [128, 129, 1, 1, 0], [0, 1, 2, 2, 2], 3)
    assert found == [384 * US, 768 * US, 768 * US]


def test_a_curve_between_its_points_and_beyond() -> None:
    """Flat at first, then 2 us a row; under the first point what that takes."""
    curve = (RowsSeconds(10, 20e-6), RowsSeconds(20, 22e-6), RowsSeconds(30, 42e-6))
    products = Products(curve=curve)
    rows, ranks = np.array([15, 20, 30, 25]), np.array([0, 1, 2, 3], dtype=np.int32)
    inside = expert_times(EXPERTS, products, rows, ranks, 4)
    assert inside.forward_picoseconds.tolist() == [21 * US, 22 * US, 42 * US, 32 * US]
    assert not inside.extrapolated
    for one, expected in ((3, 20), (100, 42 + 140), (0, 0)):
        found = expert_times(EXPERTS, products, np.array([one]), ranks[:1], 1)
        assert found.forward_picoseconds.tolist() == [expected * US]
        assert found.extrapolated is (one > 0)
    alone = Products(curve=(RowsSeconds(10, 20e-6),))
    assert times(alone, [30], [0], 1) == [60 * US]


def test_backward_by_its_ratio() -> None:
    products = Products(sustained=RATES, launch_picoseconds=US, backward_ratio=2.5)
    found = expert_times(EXPERTS, products, np.array([100]), np.array([0], dtype=np.int32), 1)
    assert found.backward_picoseconds.tolist() == [(750 + 1) * US]


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=12), st.integers(1, 256))
def test_nothing_is_quicker_than_nominal_rates(rows: list[int], tile: int) -> None:
    slots = np.array(rows)
    ranks = np.arange(len(rows), dtype=np.int32) % 3
    sustained = Roofline(RATES.flops_per_second * 0.5, RATES.bytes_per_second * 0.9)
    products = Products(sustained=sustained, tile_rows=tile)
    taken = expert_times(EXPERTS, products, slots, ranks, 3).forward_picoseconds
    assert (least_expert_times(EXPERTS, RATES, slots, ranks, 3) <= taken).all()


def test_neither_curve_nor_rates() -> None:
    with pytest.raises(ValueError, match="curve"):
        times(Products(), [1], [0], 1)


def test_more_than_a_time_may_be() -> None:
    with pytest.raises(InvalidInput):
        times(Products(sustained=Roofline(1.0, 1e11)), [10**6], [0], 1)


def test_packing_by_hand() -> None:
    """4 tokens of 1,024 elements as 6 copies, at 1 GB/s: bf16, then cast to fp8."""
    tokens, copies = np.array([4, 0]), np.array([6, 0])
    plain = Packing.of(1_024, Payload(), Payload(), 1e9, 7)
    # Read 4 x 2,048 and write 6 x 2,048; back the reverse.
    assert plain.pack(tokens, copies).tolist() == [20_480_000 + 7, 0]
    assert plain.unpack(tokens, copies).tolist() == [20_480_000 + 7, 0]
    # A scale of 4 bytes for each 128: 1,056 bytes; casting reads 4 x 2,048 and writes 4 x 1,056.
    fp8 = Payload(dtype=DType.FP8, scale_block=128)
    cast = Packing.of(1_024, fp8, Payload(), 1e9)
    assert cast.pack(tokens, copies).tolist() == [(10 * 1_056 + 4 * (2_048 + 1_056)) * 1_000, 0]
    assert cast.unpack(tokens, copies).tolist() == [20_480_000, 0]
