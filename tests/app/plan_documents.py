"""Documents that the tests of pricing store and send."""

from itertools import pairwise
from typing import Any

import msgspec

from service.app.document_kinds import DOCUMENT_TYPES
from service.app.documents import put
from service.app.ports import DocumentKind, Revision
from service.app.services import Services
from service.formats.documents.plan import PlanDocument

__all__ = ["INLINE_PLAN", "decode_plan", "inline_plan", "store_chain", "stored"]

INLINE_PLAN: dict[str, Any] = {
    "costs": {
        "stages": [
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
        ]
    },
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}


def decode_plan(value: Any) -> PlanDocument:
    """A plan from plain values."""
    return msgspec.convert(value, PlanDocument)


def inline_plan(**changes: Any) -> PlanDocument:
    """The smallest plan with some top-level fields replaced."""
    return decode_plan({**INLINE_PLAN, **changes})


async def stored(services: Services, kind: DocumentKind, name: str, document: Any) -> Revision:
    """Store plain values as a document."""
    struct = msgspec.convert(document, DOCUMENT_TYPES[kind].struct)
    return (await put(services, kind, name, struct)).revision


async def store_chain(services: Services) -> None:
    """A topology, a model of four layers, a profile of it and a plan that uses all three."""
    await stored(
        services,
        DocumentKind.TOPOLOGY,
        "two-hosts",
        {
            "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
            "fabric": {"kind": "rail_optimised", "spines": 1},
        },
    )
    layers = [f"layer{i}" for i in range(4)]
    await stored(
        services,
        DocumentKind.MODEL,
        "chain",
        {
            "layers": [{"name": name, "kind": "block"} for name in layers],
            "tensors": [
                {
                    "name": f"{source}.out",
                    "producer": source,
                    "consumers": [target],
                    "shape": ["microbatch", "sequence", 1024],
                    "dtype": "bf16",
                }
                for source, target in pairwise(layers)
            ],
        },
    )
    await stored(
        services,
        DocumentKind.PROFILE,
        "chain-h100",
        {
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
    )
    await stored(
        services,
        DocumentKind.PLAN,
        "chain-plan",
        {
            "topology": "two-hosts",
            "costs": {"model": "chain", "profile": "chain-h100"},
            "workload": {"microbatches": 8, "microbatch_size": 1, "sequence_length": 1024},
            "parallelism": {"pipeline": 2},
            "partition": {"layers_per_stage": [2, 2]},
            "schedule": {"kind": "1f1b"},
            "placement": {"devices": ["host0/gpu0", "host1/gpu0"]},
        },
    )
