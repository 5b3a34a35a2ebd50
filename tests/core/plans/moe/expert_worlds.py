"""Small expert groups, and routings that say who asks for what."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from service.core.moe.assignments import RoutingLevel
from service.core.moe.routing import Routing, RoutingRecord
from service.core.moe.settings import MoeSettings
from service.core.plans.moe.groups import expert_groups
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.placement import layout, place_ranks
from service.core.plans.plan import Degrees, Placement, ResolvedPlan
from service.core.plans.resolve import resolve
from service.core.topology.cluster import Cluster
from service.formats.documents.plan import PlanDocument, to_core
from tests.core.plans.worlds import cluster

LAYER = ExpertLayer(
    number=0,
    stage=0,
    name="l0",
    place=0,
    hidden_size=64,
    experts=4,
    top_k=1,
    width=32,
    gated=True,
)


def seen(*steps: Sequence[Sequence[Sequence[int]]], top_k: int = 1) -> Routing:
    """Each step has a matrix of sources and experts for each layer, numbered from 0."""
    layers = len(steps[0])
    records = {
        (layer, step): RoutingRecord(np.array(matrix, dtype=np.int64))
        for step, of_step in enumerate(steps)
        for layer, matrix in enumerate(of_step)
    }
    return Routing(
        experts=len(steps[0][0][0]),
        top_k=top_k,
        level=RoutingLevel.SOURCES,
        layers=tuple(range(layers)),
        step_numbers=tuple(range(len(steps))),
        records=records,
    )


def inputs(
    degrees: Degrees,
    *,
    routing: Routing | None = None,
    tokens: int = 8,
    on: Cluster | None = None,
    layers: int = 1,
    steps: Sequence[int] = (0,),
    **settings: Any,
) -> MoeInputs:
    """Layers of four experts, all on the first stage, each token asking for one."""
    found = on or cluster()
    ranks = layout(Placement(), degrees)
    placed = place_ranks(ranks, [device.name for device in found.devices])
    return MoeInputs(
        settings=MoeSettings(**settings),
        routing=routing,
        layers=tuple(
            replace(LAYER, number=n, place=n, routing_layer=None if routing is None else n)
            for n in range(layers)
        ),
        tokens=(tokens,) * len(steps),
        steps=tuple(steps),
        expert=degrees.expert,
        expert_tensor=degrees.expert_tensor,
        groups=expert_groups(degrees, ranks, placed, found),
        homes=((0,),),
    )


STAGE = {"forward_seconds": 0.01, "backward_seconds": 0.02}
# Of a device: 50 TFLOP/s and 878 GB/s are sustained.
RATES = {"peak_flops": 1e14, "memory_bytes_per_second": 1e12}


def document(layers_per_stage: Sequence[int], **moe: Any) -> dict[str, Any]:
    """Stages with experts, each on a rank in either host: an expert group is on both hosts.

    A rank brings 256 tokens of 64 elements; each asks for 2 of 8 experts of width 32.
    """
    stages = len(layers_per_stage)
    shape = {"layers_per_stage": list(layers_per_stage)} | {
        "hidden_size": 64,
        "experts": 8,
        "top_k": 2,
        "width": 32,
    }
    stated = {"shape": shape, "compute": RATES, "layer_costs_include": "nothing"} | moe
    return {
        "costs": {"stages": [STAGE] * stages},
        "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 256},
        "parallelism": {"pipeline": stages, "data": 2, "expert": 2},
        "schedule": {"kind": "1f1b"},
        "topology": "two-hosts@1",
        "placement": {"order": ["pipeline", "data"]},
        "moe": {name: value for name, value in stated.items() if value is not None},
    }


def resolved(
    asked: dict[str, Any], routing: Routing | None = None, on: Cluster | None = None
) -> ResolvedPlan:
    """The plan of a document, on two hosts of a GPU for each stage where it names a topology."""
    if routing is not None:
        asked = asked | {"moe": asked["moe"] | {"routing": "seen@1"}}
    found = (on or cluster(gpus=len(asked["costs"]["stages"]))) if "topology" in asked else None
    plan = to_core(msgspec.convert(asked, PlanDocument))
    return resolve(plan, cluster=found, routing=routing)


def hot(rank: int, tokens: int = 256) -> list[list[int]]:
    """Two sources of which all tokens ask for two of the four experts of one rank."""
    row = [0] * 8
    row[4 * rank] = row[4 * rank + 1] = tokens
    return [row, row]
