"""Plans whose experts put stated bytes on stated links, without routings or prices."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from service.core.estimates.simulation import SimulatedPlan, simulate_plan
from service.core.moe.exchange import ExchangeCost, LinkLoads
from service.core.moe.settings import MoeSettings
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.moe.results import (
    ExchangePart,
    ExpertPass,
    LayerRun,
    MoeLayer,
    Pass,
    PlanMoe,
    StageExperts,
)
from service.core.plans.plan import ResolvedPlan
from service.core.topology.cluster import Cluster
from service.core.topology.flows.study import flow_study

__all__ = ["Bytes", "exchanging", "simulated_exchanging"]

# By link, what one exchange puts on it.
Bytes = Mapping[tuple[str, str], int]

_NONE = np.zeros(1, dtype=np.int64)


def _cost(world: Cluster, carried: Bytes) -> ExchangeCost:
    network = flow_study(world).network
    numbers = {network.link_number[ends]: size for ends, size in carried.items() if size}
    links = np.array(sorted(numbers), dtype=np.int32)
    sizes = np.array([numbers[number] for number in links.tolist()], dtype=np.int64)
    return ExchangeCost((0,), (0,), (None,), LinkLoads(links, sizes))


def _pass(
    world: Cluster, parts: Mapping[ExchangePart, Bytes], times: tuple[int, int]
) -> ExpertPass:
    dispatch, combine = (_cost(world, parts.get(part, {})) for part in ExchangePart)
    products, step = (np.array([time], dtype=np.int64) for time in times)
    return ExpertPass(dispatch, combine, _NONE, products, _NONE, _NONE, _NONE, step)


# For a layer, on a pipeline rank and in a size class: what each part of each pass puts on links.
Exchanges = Mapping[tuple[int, int], Mapping[Pass, Mapping[ExchangePart, Bytes]]]


def exchanging(
    resolved: ResolvedPlan,
    layers: Sequence[tuple[int, Exchanges]],
    *,
    repeats: bool = False,
    efficiency: float = 1.0,
    times: tuple[int, int] = (0, 0),
) -> ResolvedPlan:
    """The plan with layers of experts, each a stage and its exchanges by home and size class.

    `times` are the picoseconds of the products and of the step of each pass of a layer, which are
    in the times of the stages already.
    """
    world = resolved.cluster
    assert world is not None
    homes = tuple(tuple(dict.fromkeys(stage.ranks)) for stage in resolved.stages)
    found = []
    for number, (stage, exchanges) in enumerate(layers):
        by_home = {
            home: tuple(
                LayerRun(
                    (),
                    _pass(world, exchanges[home, size].get(Pass.FORWARD, {}), times),
                    _pass(world, exchanges[home, size].get(Pass.BACKWARD, {}), times),
                )
                for size in range(resolved.sizes.count)
            )
            for home in homes[stage]
        }
        layer = ExpertLayer(number, stage, None, None, 1, 1, 1, 1, gated=False)
        runs = by_home[homes[stage][0]]
        found.append(MoeLayer(layer, runs, repeats, {}, {}, by_home))
    inputs = MoeInputs(
        MoeSettings(exchange_efficiency=efficiency),
        None,
        tuple(one.layer for one in found),
        (1,) * resolved.sizes.count,
        (0,) * resolved.sizes.count,
        1,
        1,
        (),
        homes,
    )
    stages = tuple(
        StageExperts(
            stage,
            homes[stage][0],
            tuple(one.layer.number for one in found if one.layer.stage == stage),
            {},
            {},
        )
        for stage in range(len(resolved.stages))
    )
    return replace(resolved, moe=PlanMoe(inputs, tuple(found), stages, 0))


def simulated_exchanging(
    resolved: ResolvedPlan,
    layers: Sequence[tuple[int, Exchanges]],
    *,
    repeats: bool = False,
    efficiency: float = 1.0,
    times: tuple[int, int] = (0, 0),
) -> SimulatedPlan:
    """The same, simulated."""
    return simulate_plan(
        exchanging(resolved, layers, repeats=repeats, efficiency=efficiency, times=times)
    )
