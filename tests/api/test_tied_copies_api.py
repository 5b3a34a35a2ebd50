"""Copies of a tied weight over HTTP: when their gradients are added up, and what that adds."""

from typing import Any

import httpx
import pytest

WEIGHTS = 8_192_000  # of two bytes each
DOCUMENTS: dict[str, Any] = {
    "topologies/pair": {
        "hosts": [
            {
                "name": "host",
                "devices": [{"name": "gpu0", "kind": "gpu"}, {"name": "gpu1", "kind": "gpu"}],
                "links": [
                    {
                        "source": "gpu0",
                        "target": "gpu1",
                        "kind": "pcie",
                        "bandwidth_bytes_per_second": 8.192e9,
                        "latency_seconds": 0,
                    }
                ],
            }
        ]
    },
    "models/tied": {
        "layers": [
            {
                "name": name,
                "kind": name,
                "parameters": [
                    {"name": name, "count": WEIGHTS, "dtype": "bf16", "tied_group": "words"}
                ],
            }
            for name in ("embedding", "head")
        ],
        "tensors": [
            {
                "name": "hidden",
                "producer": "embedding",
                "consumers": ["head"],
                "shape": ["microbatch", "sequence", 4000],
                "dtype": "bf16",
            }
        ],
    },
    "profiles/tied": {
        "device": "gpu",
        "measurements": [
            {
                "layer": "*",
                "microbatch_size": 1,
                "sequence_length": 1024,
                "forward_seconds": 0.001,
                "backward_seconds": 0.002,
            }
        ],
    },
}
PLAN: dict[str, Any] = {
    "topology": "pair",
    "costs": {"model": "tied", "profile": "tied"},
    "workload": {"microbatches": 2, "microbatch_size": 1, "sequence_length": 1024},
    "parallelism": {"pipeline": 2},
    "partition": {"layers_per_stage": [1, 1], "tied_parameters": "duplicate"},
    "schedule": {"kind": "1f1b"},
    "training": {
        "optimizer": "sgd",
        "weight_dtype": "bf16",
        "master_dtype": "none",
        "optimizer_step_seconds": 0.0005,
    },
}


async def test_copies_are_added_up_between_the_last_backward_and_the_step(
    client: httpx.AsyncClient,
) -> None:
    """Two stages of 1 ms forward and 2 ms backward, whose activations cross the link in 1 ms.

    Rank 1 runs forward 0 at 2 ms, backward 0 at 3, forward 1 at 5 and backward 1 from 6 to 8 ms.
    Its gradients are at rank 0 at 6 and 9 ms, so that rank 0 is done at 11 ms. Two ranks add up
    2 x 8,192,000 bytes in two steps of half of them each way, at 8.192 GB/s in 2 ms, from when the
    later of them is done; each then steps for 0.5 ms.
    """
    for path, document in DOCUMENTS.items():
        response = await client.put(f"/v1/{path}", json=document)
        assert response.status_code == 201, response.text
    response = await client.post("/v1/estimates", json={"plan": PLAN})
    assert response.status_code == 201, response.text
    answer = response.json()
    terms = answer["iteration"]
    assert terms["schedule_seconds"] == answer["bubble"]["makespan_seconds"] == 0.011
    assert terms["gradient_reductions"] == []
    assert terms["tied_copies"] == [
        {
            "weights": ["words"],
            "pipeline_ranks": [0, 1],
            "start_seconds": 0.011,
            "end_seconds": 0.013,
        }
    ]
    told = [
        (one["last_operation_seconds"], one["exposed_reduction_seconds"], one["end_seconds"])
        for one in terms["ranks"]
    ]
    assert told == [
        (0.011, pytest.approx(0.002), 0.0135),
        (0.008, pytest.approx(0.005), 0.0135),
    ]
    assert answer["iteration_seconds"] == terms["seconds"] == 0.0135
