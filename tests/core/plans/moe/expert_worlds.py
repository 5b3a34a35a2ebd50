"""Small expert groups, and routings that say who asks for what."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from service.core.moe.assignments import RoutingLevel
from service.core.moe.routing import Routing, RoutingRecord
from service.core.moe.settings import MoeSettings
from service.core.plans.moe.groups import expert_groups
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.placement import layout, place_ranks
from service.core.plans.plan import Degrees, Placement
from service.core.topology.cluster import Cluster
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
