"""The moved MLP of the worked examples over HTTP: what it changes, and what that was due to.

By hand: every layer takes 3 ms a microbatch, a recomputed MLP 5. Before, stage 2 has 7 layers of
which two recompute (25 ms), the others 6 (18 ms). After, stage 1 has 7 (21 ms), and stage 2 six of
which one recomputes (20 ms). The output of a layer is 2048 tokens x 2048 x 2 bytes, which the link
between the two stages carries in 1 ms.
"""

from typing import Any

import httpx
import pytest

from tests.api.example_documents import store_examples

OUTPUT = 2048 * 2048 * 2
ATTENTION, MLP = 4 * 2048**2, 8 * 2048**2  # elements of their weights


async def comparison_of(client: httpx.AsyncClient, *names: str) -> dict[str, Any]:
    await store_examples(client)
    plans = [{"name": name, "plan": f"moved-mlp-{name}"} for name in names]
    response = await client.post("/v1/comparisons", json={"plans": plans})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer["unlike"] == []
    return answer


def sides(difference: dict[str, Any]) -> list[dict[str, Any]]:
    return [difference["before"], difference["after"]]


def _told(side: dict[str, Any]) -> dict[str, float]:
    costs = side["costs"]
    return {
        "work": 1000 * costs["work_seconds"],
        "again": 1000 * costs["recompute_seconds"],
        "weights": costs["weights"]["parameter_bytes"] / 2,
        "saved": side["saved_activation_bytes"] / OUTPUT,
        "made": side["recomputed_activation_bytes"] / OUTPUT,
    }


async def test_the_move_is_explained_in_full(client: httpx.AsyncClient) -> None:
    answer = await comparison_of(client, "before", "after")
    cadences = [plan["slowest_stage_seconds"] for plan in answer["plans"]]
    assert cadences == [pytest.approx(0.025), pytest.approx(0.021)]
    (found,) = answer["comparisons"]

    # The cause is compute; the transfer is as long as it was and has no part in it.
    assert found["attribution"]["cause"] == "compute"
    effects = {one["cause"]: one["iteration_seconds"] for one in found["attribution"]["effects"]}
    assert effects["compute"] == found["difference_seconds"] < 0
    assert {effects[cause] for cause in effects if cause != "compute"} == {0}
    assert "because of compute" in found["summary"]

    lower, upper = found["differences"]["stages"]
    assert (lower["stage"], lower["layers_gained"], lower["layers_lost"]) == (
        1,
        ["block.5.mlp"],
        [],
    )
    assert (upper["stage"], upper["layers_gained"], upper["layers_lost"]) == (
        2,
        [],
        ["block.5.mlp"],
    )
    assert lower["alone_iteration_seconds"] > 0 > upper["alone_iteration_seconds"]
    # Per stage: work and recomputation in ms, weights in elements, activations in outputs.
    expected: list[tuple[dict[str, Any], str, tuple[float, float]]] = [
        (lower, "work", (18, 21)),
        (lower, "again", (0, 0)),
        (lower, "weights", (3 * ATTENTION + 3 * MLP, 3 * ATTENTION + 4 * MLP)),
        (lower, "saved", (45, 54)),
        (lower, "made", (0, 0)),
        (upper, "work", (25, 20)),
        (upper, "again", (3, 1.5)),
        (upper, "weights", (4 * ATTENTION + 3 * MLP, 4 * ATTENTION + 2 * MLP)),
        (upper, "saved", (35, 34)),
        (upper, "made", (8, 8)),  # layer by layer, so what one MLP makes
    ]
    for stage, what, numbers in expected:
        told = [_told(side)[what] for side in sides(stage)]
        assert told == pytest.approx(numbers), what

    # What crosses is another tensor of the same bytes on the same path.
    (cut,) = found["differences"]["cuts"]
    assert (cut["source_stage"], cut["target_stage"]) == (1, 2)
    assert "alone_iteration_seconds" not in cut
    tensors = [side["tensors"][0]["name"] for side in sides(cut)]
    assert tensors == ["block.5.attention.output", "block.5.mlp.output"]
    for side in sides(cut):
        for way in ("forward", "backward"):
            assert side[way]["bytes"] == OUTPUT
            assert side[way]["transfer_seconds"] == pytest.approx(0.001)
    paths = [side["pairs"][0]["forward"]["path"] for side in sides(cut)]
    assert paths[0] == paths[1]

    # 1F1B keeps three microbatches on rank 1 and two on rank 2, one of them recomputed at a time.
    peaks = {
        one["rank"]: [side["peak_bytes"] // OUTPUT for side in sides(one)]
        for one in found["differences"]["lifetimes"]
    }
    assert peaks == {1: [3 * 45, 3 * 54], 2: [2 * 35 + 8, 2 * 34 + 8]}


async def test_the_terms_of_memory_that_the_move_changes(client: httpx.AsyncClient) -> None:
    """Weights of 2 bytes; activations of three microbatches on rank 1, of two on rank 2."""
    (found,) = (await comparison_of(client, "before", "after"))["comparisons"]
    memory = {
        one["rank"]: {
            term["term"]: [side["maximum_bytes"] for side in sides(term)] for term in one["terms"]
        }
        for one in found["differences"]["memory"]
    }
    assert memory.keys() == {1, 2}
    assert memory[1]["weights"] == [2 * (3 * ATTENTION + n * MLP) for n in (3, 4)]
    assert memory[2]["weights"] == [2 * (4 * ATTENTION + n * MLP) for n in (3, 2)]
    assert memory[1]["activations"] == [3 * 45 * OUTPUT, 3 * 54 * OUTPUT]
    assert memory[2]["activations"] == [2 * 35 * OUTPUT, 2 * 34 * OUTPUT]
    for one in found["differences"]["memory"]:
        before, after = sides(one)
        changes = [
            term["after"]["at_peak_bytes"] - term["before"]["at_peak_bytes"]
            for term in one["terms"]
        ]
        assert after["total_bytes"] - before["total_bytes"] == sum(changes)


async def test_moving_it_back_is_the_same_with_the_other_sign(client: httpx.AsyncClient) -> None:
    there = (await comparison_of(client, "before", "after"))["comparisons"][0]
    back = (await comparison_of(client, "after", "before"))["comparisons"][0]
    assert back["difference_seconds"] == -there["difference_seconds"]
    assert back["attribution"]["cause"] == "compute"
    assert back["differences"]["stages"][0]["layers_lost"] == ["block.5.mlp"]
    swapped = [(one["after"], one["before"]) for one in back["differences"]["lifetimes"]]
    assert swapped == [(one["before"], one["after"]) for one in there["differences"]["lifetimes"]]
