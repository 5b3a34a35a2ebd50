"""The experts of a plan over HTTP: bytes, bounds and rows by hand, and what else is asked."""

from typing import Any

import httpx
import pytest

from tests.api.price_requests import DOCUMENTS

COPY = 4096 * 2  # bytes, in bf16
NIC, NVLINK = 50e9, 450e9
PCIE = 16 * 32e9 / 8 * 128 / 130

# Four sources of 1,000 tokens, each token asking for one expert; each rank has one. 400 tokens of
# the third rank, on the other host, go to the first; all others stay at home.
ROUTING = {
    "experts": 4,
    "top_k": 1,
    "layers": [
        {
            "layer": 0,
            "matrix": [[1000, 0, 0, 0], [0, 1000, 0, 0], [400, 0, 600, 0], [0, 0, 0, 1000]],
        }
    ],
}
PLAN: dict[str, Any] = {
    "topology": "two-hosts",
    "costs": {"stages": [{"forward_seconds": 0.001, "backward_seconds": 0.002}]},
    "workload": {"microbatches": 8},
    "schedule": {"kind": "1f1b"},
    "parallelism": {"data": 4, "expert": 4},
    "placement": {"devices": ["host0/gpu0", "host0/gpu1", "host1/gpu0", "host1/gpu1"]},
    "moe": {
        "routing": "hot",
        "shape": {
            "layers_per_stage": [1],
            "hidden_size": 4096,
            "experts": 4,
            "top_k": 1,
            "width": 8192,
            "tokens_per_rank": 1000,
        },
        "compute": {
            "curve": [{"rows": 1000, "seconds": 0.001}],
            "tile_rows": 1,
            "memory_bytes_per_second": 1e12,
            "memory_efficiency": 1,
        },
        "layer_costs_include": "nothing",
    },
}


async def ask(client: httpx.AsyncClient, status: int = 200, **request: Any) -> Any:
    for kind, name, document in (
        ("topologies", "two-hosts", DOCUMENTS["topologies/two-hosts"]),
        ("routings", "hot", ROUTING),
    ):
        stored = await client.put(f"/v1/{kind}/{name}", json=document)
        assert stored.status_code in {200, 201}, stored.text
    response = await client.post("/v1/moe-all-to-all", json={"plan": PLAN, **request})
    assert response.status_code == status, response.text
    return response.json()


async def test_one_busy_pair_by_hand(client: httpx.AsyncClient) -> None:
    """400 tokens from host 1 to host 0: 65.5 us pinned to one NIC, 8.2 us over all NICs of a host.

    The first expert has 1,400 rows where the mean is 1,000. Packing reads and writes 1,000 tokens.
    """
    found = await ask(client, matrices=True)
    assert found["routing_level"] == "source_expert"
    assert found["expert_group"] == {"ranks": 4, "groups": 1, "shown": 0}
    (layer,) = found["layers"]
    (run,) = layer["runs"]
    assert (layer["stage"], layer["experts"], layer["routing_layer"]) == (0, 4, 0)
    assert (run["microbatches"], run["routing_step"], run["tokens_per_rank"]) == (8, 0, 1000)
    assert run["copies_counted"]
    assert run["rows_by_rank"] == [1400, 1000, 600, 1000]
    assert run["ranks"]["max_over_mean_ratio"] == 1.4
    assert run["ranks"]["straggler_loss_fraction"] == pytest.approx(0.4 / 1.4)
    assert run["hosts"]["most_rows"] == 2400
    assert run["busiest_plan_rank"] == 0

    forward, moved = run["forward"], 400 * COPY
    dispatch = forward["dispatch"]
    assert dispatch["wire_bytes"] == dispatch["between_hosts_bytes"] == moved
    assert dispatch["logical_bytes"] == 4000 * COPY
    assert dispatch["sent_bytes_by_rank"] == [0, 0, moved, 0]
    assert dispatch["received"]["most_rank"] == 0
    assert forward["combine"]["sent_bytes_by_rank"] == [moved, 0, 0, 0]
    assert run["matrices"][0]["bytes"][2] == [moved, 0, 600 * COPY, 0]
    pinned, any_route = (dispatch["lower_bounds"][way] for way in ("pinned", "any_route"))
    assert pinned["nic"]["seconds"] == pytest.approx(moved / NIC)
    assert pinned["nic"]["demanded_bytes"] == moved
    assert any_route["host"]["seconds"] == pytest.approx(moved / (8 * NIC))
    assert any_route["gpu_port"]["seconds"] == pytest.approx(moved / (NVLINK + PCIE), rel=1e-3)
    predicted = dispatch["prediction"]["seconds"]
    assert pinned["nic"]["utilisation_fraction"] == pytest.approx(moved / NIC / predicted)
    assert predicted >= max(bound["seconds"] for bound in pinned.values())

    assert forward["products_seconds"] == 0.0014
    assert run["backward"]["products_seconds"] == 0.0028
    assert forward["packing_seconds"] == pytest.approx(2 * 1000 * COPY / 1e12)
    assert forward["step_seconds"] == forward["in_turn_seconds"]
    parts = ("packing_seconds", "products_seconds", "unpacking_seconds")
    exchanges = predicted + forward["combine"]["prediction"]["seconds"]
    assert forward["step_seconds"] == pytest.approx(sum(forward[one] for one in parts) + exchanges)
    # Both ways are different links, which may be busy at once.
    assert forward["lower_bounds"]["pinned_seconds"] == pytest.approx(moved / NIC)
    assert found["stages"][0]["forward_seconds"] == pytest.approx(forward["step_seconds"])
    assert run["bisection"]["side_size"] == 2


async def test_even_choice_stands_beside_what_was_measured(client: httpx.AsyncClient) -> None:
    """Each source would send 250 tokens to each expert: 3,000 copies travel, none waits for it."""
    found = await ask(client)
    run = found["layers"][0]["runs"][0]
    assert run["even"]["most_rank_rows"] == 1000
    assert run["even"]["more_rank_rows"] == 400
    assert run["even"]["wire_bytes"] == 3000 * COPY
    assert run["even"]["more_wire_bytes"] == (400 - 3000) * COPY
    difference = run["forward"]["step_seconds"] - run["even"]["forward_seconds"]
    assert run["even"]["more_forward_seconds"] == pytest.approx(difference)
    assert found["even"]["more_rank_rows"] == 400
    assert found["over_layers"]["expert_seconds"] == pytest.approx(
        8 * (run["forward"]["step_seconds"] + run["backward"]["step_seconds"])
    )
    evenly = await ask(client, patch={"moe": {"routing": None, "skew": {"kind": "uniform"}}})
    assert "even" not in evenly
    assert evenly["over_layers"]["expert_seconds"] == found["even"]["expert_seconds"]


async def test_other_factors_and_placements_are_priced(client: httpx.AsyncClient) -> None:
    """Factor 1 lets a source give an expert 250 tokens: of 4,000 only 1,250 are served.

    In eight slots the busy expert has replicas, and what that gains is what the plan then takes.
    """
    found = await ask(client, capacity_factors=[1.0, 4.0], advice={"extra_slots": 4})
    tight, wide = found["capacity_factors"]
    assert tight["dropped_fraction"] == 1 - (3 * 250 + 250 + 250) / 4000
    assert tight["capacity_rows"] == 250
    assert wide["dropped_fraction"] == 0
    assert wide["expert_seconds"] == found["over_layers"]["expert_seconds"]
    assert "capacity_factors_dropped" in {said["code"] for said in found["assumptions"]}
    advice = found["advice"]
    best = advice["all_layers"]
    assert best["ranks_before"]["most_rows"] == 8 * 1400
    assert best["ranks_after"]["most_rows"] < 8 * 1400
    assert sum(0 in rank for rank in best["experts_by_rank"]) > 1
    # The plan can state it, and then takes what was said.
    stated = await ask(client, patch={"moe": {"placement": best["experts_by_rank"]}})
    assert stated["over_layers"]["expert_seconds"] == best["expert_seconds_after"]
    assert advice["layers"][0]["gain_seconds"] == best["gain_seconds"]


@pytest.mark.parametrize(
    ("request_", "pointer"),
    [
        ({"advice": {"extra_slots": 13}}, "/advice/extra_slots"),
        ({"patch": {"moe": None}}, "/patch/moe"),
        ({"patch": {"moe": {"routing": "none"}}}, "/patch/moe/routing"),
    ],
)
async def test_faults_point_to_where_they_are(
    client: httpx.AsyncClient, request_: dict[str, Any], pointer: str
) -> None:
    problem = await ask(client, 422, **request_)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


async def test_without_a_topology_there_are_bytes_and_no_links(client: httpx.AsyncClient) -> None:
    found = await ask(client, patch={"topology": None, "placement": None})
    dispatch = found["layers"][0]["runs"][0]["forward"]["dispatch"]
    assert dispatch["wire_bytes"] == 400 * COPY
    assert not {"lower_bounds", "prediction", "between_hosts_bytes"} & dispatch.keys()
    assert "expert_exchange" in {said["code"] for said in found["not_represented"]}


async def test_links_that_stages_and_experts_share_name_their_users(
    client: httpx.AsyncClient,
) -> None:
    """Experts of the first stage are on both hosts, and so are the ends of each boundary."""
    stage = {"forward_seconds": 0.001, "backward_seconds": 0.002}
    patch = {
        "costs": {"stages": [{**stage, "boundary_bytes": 50_000_000}, stage]},
        "parallelism": {"pipeline": 2, "data": 2, "expert": 2},
        "placement": {"devices": ["host0/gpu0", "host1/gpu0", "host1/gpu1", "host0/gpu1"]},
        "moe": {
            "routing": None,
            "skew": {"kind": "hot_expert", "fraction": 1, "expert": 0},
            "shape": {"layers_per_stage": [1, 0]},
        },
    }
    found = await ask(client, patch=patch)
    shared = found["shared_links"]
    assert shared["shared"] == len(shared["links"]) > 0
    link = next(one for one in shared["links"] if one["transfers_and_exchanges"])
    assert "transfer" in {one["use"] for one in link["users"]}
    assert {"dispatch", "combine"} & {one["use"] for one in link["users"]}
    assert link["bytes_per_microbatch"] == sum(one["bytes_per_microbatch"] for one in link["users"])
    transfer = next(one for one in link["users"] if one["use"] == "transfer")
    assert transfer["bytes_per_microbatch"] == 50_000_000
    interference = shared["interference"]
    assert found["uniform_routing"]["routed"]["iteration_seconds"] == pytest.approx(
        interference["together_seconds"]
    )
    parts = ("among_transfers_seconds", "among_exchanges_seconds", "between_seconds")
    assert interference["apart_seconds"] + sum(interference[one] for one in parts) == pytest.approx(
        interference["together_seconds"]
    )
