"""Recorded loads of experts lie in the ranges that are known of them, layer by layer."""

from pathlib import Path

import pytest

from validation.expert_loads import RECORDED, layers_of, measures
from validation.rows import Files, decimals_of

FILES = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not (FILES / "expert_loads").is_dir(), reason="no recorded loads at hand"
)


@pytest.mark.parametrize("title", RECORDED)
def test_every_layer_is_as_uneven_as_is_known_of_it(title: str) -> None:
    names, ranges = RECORDED[title]
    for counts in layers_of(Files(FILES), names):
        for value, (least, most) in zip(measures(counts), ranges, strict=True):
            assert float(least) <= round(value, decimals_of(least)) <= float(most)


def test_balanced_at_the_first_step_says_nothing_of_later_ones() -> None:
    first, later = (
        [measures(counts)[1] for counts in layers_of(Files(FILES), names)]
        for names in (
            ["smartmoe_gpt_train_iter0001"],
            ["smartmoe_gpt_train_iter1001", "smartmoe_gpt_train_iter2501"],
        )
    )
    assert max(first) < 1.2
    assert min(later) > 2
