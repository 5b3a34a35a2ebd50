"""Published PipeDream profiles, imported and priced over HTTP as four stages on two hosts."""

from pathlib import Path

import httpx
import pytest

from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.pipedream import read_pipedream
from validation.best_partition import best_four_stages

PROFILES = (
    Path(__file__).resolve().parents[3] / "shared" / "data" / "profiles" / "pipedream" / "profiler"
)
IMAGES = PROFILES / "image_classification" / "profiles"

pytestmark = pytest.mark.skipif(not PROFILES.is_dir(), reason="no published profiles at hand")

# The plan does not depend on the batch that was profiled; each microbatch is one of them.
BATCH = 128


def best_stages(content: bytes) -> list[list[str]]:
    """The layers of the best four stages."""
    read = read_pipedream(content, microbatch_size=BATCH)
    model, profile = models.to_core(read.model), profiles.to_core(read.profile)
    costs = [0] * len(model.layers)
    for position, layer in enumerate(model.layers):
        if not layer.is_input:
            cost = profile.lookup(layer.name, BATCH)
            costs[position] = cost.forward_picoseconds + (cost.backward_picoseconds or 0)
    return best_four_stages(model, costs)[1]


@pytest.mark.parametrize(
    ("folder", "slowest_seconds"),
    [
        pytest.param(IMAGES / "vgg16", 0.216450, id="vgg16"),
        pytest.param(IMAGES / "resnet50", 0.111497, id="resnet50"),
        pytest.param(IMAGES / "alexnet", 0.028721, id="alexnet"),
        pytest.param(PROFILES / "translation" / "profiles" / "gnmt", 0.025868, id="gnmt"),
    ],
)
async def test_four_stages_on_two_hosts(
    client: httpx.AsyncClient, folder: Path, slowest_seconds: float
) -> None:
    content = (folder / "graph.txt").read_bytes()
    imported = await client.post(
        "/v1/profiles/published/imports",
        files={"file": ("graph.txt", content)},
        data={"microbatch_size": str(BATCH)},
    )
    assert imported.status_code == 201, imported.text
    stored = await client.put(
        "/v1/topologies/two-hosts",
        json={
            "hosts": [{"name": "host", "count": 2, "design": "dgx-1-v100"}],
            "fabric": {"kind": "leaf_spine", "hosts_per_leaf": 2, "spines": 1},
        },
    )
    assert stored.status_code == 201, stored.text
    plan = {
        "topology": "two-hosts",
        "costs": {"model": "published", "profile": "published"},
        "workload": {"microbatches": 8, "microbatch_size": BATCH},
        "partition": {"stages": best_stages(content)},
        "schedule": {"kind": "1f1b"},
        "placement": {"devices": ["host0/gpu[0-1]", "host1/gpu[0-1]"]},
    }
    for microbatches in (8, 32):
        patch = {"workload": {"microbatches": microbatches}}
        response = await client.post("/v1/estimates", json={"plan": plan, "patch": patch})
        assert response.status_code == 201, response.text
        answer = response.json()
        works = [stage["work_seconds"] for stage in answer["cadence"]["stages"]]
        assert len(works) == 4
        assert max(works) == pytest.approx(slowest_seconds, abs=1e-12)
        assert answer["cadence"]["bound_seconds"] == max(works)
        # The size of a microbatch is what was profiled, so the global batch grows.
        assert answer["workload"]["held_fixed"] == "microbatch_size"
        assert answer["workload"]["global_batch_size"] == BATCH * microbatches
        assert "batch_follows" in {statement["code"] for statement in answer["assumptions"]}
        assert "loader_time" in {statement["code"] for statement in answer["not_represented"]}
        for bound in answer["lower_bounds"]:
            if bound["mode"] == "latency":
                assert bound["seconds"] <= answer["iteration_seconds"]
        for boundary in answer["boundary_transfers"]["boundaries"]:
            for direction in ("forward", "backward"):
                part = boundary[direction]
                assert part["lower_bound_seconds"] <= part["transfer_seconds"]
