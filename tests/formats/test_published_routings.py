"""Expert loads that others recorded, read as they are; skipped where the files are not at hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from service.core.moe.assignments import RoutingLevel
from service.core.moe.routing import assignments, expert_loads
from service.core.moe.routing_summary import summarise_routing
from tests.formats.routing_files import PUBLISHED, joined, routing_of

FILES = sorted(PUBLISHED.glob("*.json"))
STEPS = ("iter0001", "iter1001", "iter2501")

pytestmark = pytest.mark.skipif(not FILES, reason="the files of others are not at hand")


def published(name: str) -> bytes:
    return (PUBLISHED / f"{name}.json").read_bytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_read_as_it_is(path: Path) -> None:
    plain = json.loads(path.read_bytes())
    stated = {} if "top_k" in plain else {"top_k": 2}
    routing = routing_of(joined(path.read_bytes(), **stated))
    assert routing.experts == plain["num_experts"]
    assert routing.top_k == plain.get("top_k", 2)
    for layer in plain.get("layers", [plain]):
        record = routing.records[layer["layer"], 0]
        if "topk_ids" in layer:
            assert record.choices is not None
            assert record.choices.tolist() == layer["topk_ids"]
        else:
            assert record.counts.tolist() == layer.get("matrix", [layer.get("counts")])


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("mixtral_8x7b_c4", 1.07, 1.13),
        ("mixtral_8x7b_github", 1.24, 1.33),
        ("olmoe_c4", 2.5, 3.02),
        ("olmoe_github", 4.5, 6.2),
        ("deepseek_v2_lite_esft_summary", 1.97, 6.6),
    ],
)
def test_the_busiest_expert_is_in_the_range_that_was_found(
    name: str, least: float, most: float
) -> None:
    found = summarise_routing(routing_of(joined(published(name)))).expert_max_over_mean
    assert found is not None
    assert least - 0.005 <= found[0] <= found[1] <= most


def test_three_iterations_are_three_steps() -> None:
    files = [published(f"smartmoe_gpt_train_{step}") for step in STEPS]
    routing = routing_of(joined(*files, top_k=2))
    assert (routing.level, routing.step_numbers) == (RoutingLevel.SOURCES, (1, 1001, 2501))
    assert routing.layers == (0, 6, 12, 18, 23)
    tokens = np.full(16, 2048)
    ratios = []
    for step in range(3):
        asked = assignments(routing, 0, step, tokens)
        assert not asked.notes
        loads = expert_loads(routing, 0, step)
        assert asked.assignments.counts.sum(axis=0).tolist() == loads.tolist()
        ratios.append(float(loads.max() / loads.mean()))
    assert ratios[0] < 2 < ratios[1]  # balanced at the first step proves nothing


def test_a_gate_of_more_choices_than_were_made_is_refused() -> None:
    # 4,096 assignments of 1,024 tokens would not leave room for 1,332 to one expert.
    with pytest.raises(Exception, match="1332 assignments to one expert from 1024 tokens"):
        joined(published("smartmoe_gpt_train_iter1001"), top_k=4)
