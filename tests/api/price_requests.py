"""Plans and documents that the tests of calculations send."""

from itertools import pairwise
from typing import Any

import httpx

__all__ = [
    "CALCULATIONS",
    "DOCUMENTS",
    "FOUR_LINES",
    "cadence_plan",
    "store_documents",
    "two_host_plan",
]

CALCULATIONS = (
    "cadence",
    "bubble",
    "boundary-transfers",
    "live-activations",
    "sensitivities",
    "estimates",
)

FOUR_LINES: dict[str, Any] = {
    "costs": {
        "stages": [
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
        ]
    },
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}

_LAYERS = [f"layer{i}" for i in range(4)]

DOCUMENTS: dict[str, Any] = {
    "topologies/two-hosts": {
        "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
        "fabric": {"kind": "rail_optimised", "spines": 1},
    },
    "models/chain": {
        "layers": [{"name": name, "kind": "block"} for name in _LAYERS],
        "tensors": [
            {
                "name": f"{source}.out",
                "producer": source,
                "consumers": [target],
                "shape": ["microbatch", "sequence", 1024],
                "dtype": "bf16",
            }
            for source, target in pairwise(_LAYERS)
        ],
    },
    "profiles/chain-h100": {
        "device": "H100",
        "measurements": [
            {
                "layer": "layer*",
                "microbatch_size": size,
                "sequence_length": 1024,
                "forward_seconds": 0.001 * size,
                "backward_seconds": 0.002 * size,
                "saved_activation_bytes": 1000 * size,
            }
            for size in (1, 2)
        ],
    },
}


def cadence_plan(*milliseconds: float) -> dict[str, Any]:
    """Stages of so much work a microbatch, one third forward, two thirds backward."""
    return {
        "costs": {
            "stages": [
                {"forward_seconds": m / 3000, "backward_seconds": m / 1500} for m in milliseconds
            ]
        },
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 16, "microbatch_size": 1},
    }


def two_host_plan(*devices: str) -> dict[str, Any]:
    """Two stages of a profiled model on the named devices."""
    return {
        "topology": "two-hosts",
        "costs": {"model": "chain", "profile": "chain-h100"},
        "workload": {"microbatches": 8, "microbatch_size": 1, "sequence_length": 1024},
        "parallelism": {"pipeline": 2},
        "partition": {"layers_per_stage": [2, 2]},
        "schedule": {"kind": "1f1b"},
        "placement": {"devices": list(devices)},
    }


async def store_documents(client: httpx.AsyncClient) -> None:
    """A topology of two hosts, a model of four layers and a profile of it."""
    for path, document in DOCUMENTS.items():
        response = await client.put(f"/v1/{path}", json=document)
        assert response.status_code in {200, 201}, response.text
