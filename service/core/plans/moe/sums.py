"""Layers with experts added up: by stage, for the group that stands for all."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from service.core.amounts import Amount, SizeClasses, total
from service.core.moe.settings import LayerCostsInclude
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.moe.results import (
    ExpertPass,
    LayerRun,
    MoeLayer,
    Pass,
    PlanMoe,
    StageExperts,
)

__all__ = ["priced_experts"]

Int64Array = npt.NDArray[np.int64]

# One layer for a size class of microbatches, on the groups of a pipeline rank.
Run = Callable[[ExpertLayer, int, int], LayerRun]


def priced_experts(
    inputs: MoeInputs,
    run: Run,
    evenly: Run,
    *,
    sizes: SizeClasses,
    repeats: Sequence[bool],
    includes: LayerCostsInclude,
) -> PlanMoe:
    """What the layers of a plan take, each the slowest rank of its group, and their stages.

    `run` prices a layer as the plan routes its tokens, `evenly` with tokens that choose evenly.
    `repeats` has for each layer whether its forward is computed again. Where a stage lives on
    several pipeline ranks the groups of the one that takes longer count.
    """
    counts = [sizes.microbatches]
    if sizes.count > 1:
        counts = np.bincount(sizes.of_microbatch, minlength=sizes.count).tolist()
    homes = []
    for stage, of in enumerate(inputs.homes):
        taken = [_longest(inputs, run, counts, stage, home) for home in of if len(of) > 1]
        homes.append(of[taken.index(max(taken))] if taken else of[0])
    everywhere = [
        {
            home: tuple(run(layer, number, home) for number in range(sizes.count))
            for home in inputs.homes[layer.stage]
        }
        for layer in inputs.layers
    ]
    runs = [of[homes[one.stage]] for one, of in zip(inputs.layers, everywhere, strict=True)]
    by_group = sum(
        (_whole(of, counts) for of in runs), np.zeros(inputs.groups[0].count, dtype=np.int64)
    )
    group = int(by_group.argmax())
    layers = []
    for layer, made, by_home, again in zip(inputs.layers, runs, everywhere, repeats, strict=True):
        takes = _by_pass(made, _steps, group, again=again)
        contained: Mapping[Pass, Amount] = dict.fromkeys(Pass, 0)
        if includes is not LayerCostsInclude.NOTHING:
            even = [evenly(layer, number, homes[layer.stage]) for number in range(sizes.count)]
            part = _products if includes is LayerCostsInclude.EXPERTS else _steps
            contained = _by_pass(even, part, group, again=again)
        layers.append(MoeLayer(layer, made, again, takes, contained, by_home))
    return PlanMoe(inputs, tuple(layers), _stages(layers, homes), group)


def _longest(inputs: MoeInputs, run: Run, counts: Sequence[int], stage: int, home: int) -> int:
    """What the groups of a pipeline rank take for one stage, the longest of them."""
    found = np.zeros(inputs.groups[home].count, dtype=np.int64)
    for layer in inputs.layers:
        if layer.stage == stage:
            found += _whole([run(layer, n, home) for n in range(len(counts))], counts)
    return int(found.max())


def _whole(runs: Sequence[LayerRun], counts: Sequence[int]) -> Int64Array:
    """(G,) all forwards and backwards of a layer in one iteration, by group."""
    found = np.zeros_like(runs[0].forward.step)
    for run, count in zip(runs, counts, strict=True):
        found += count * run.forward.step
        if run.backward is not None:
            found += count * run.backward.step
    return found


def _steps(made: ExpertPass, group: int) -> int:
    return int(made.step[group])


def _products(made: ExpertPass, group: int) -> int:
    return int(made.products[group])


def _by_pass(
    runs: Sequence[LayerRun], of: Callable[[ExpertPass, int], int], group: int, *, again: bool
) -> dict[Pass, Amount]:
    """One part of a layer's runs by pass, for each size class."""
    forward = total(tuple(of(run.forward, group) for run in runs))
    backward = weights = [0] * len(runs)
    if all(run.backward is not None for run in runs):
        backward = [of(run.backward, group) for run in runs if run.backward is not None]
        weights = [
            int(run.backward.weight_products[group]) for run in runs if run.backward is not None
        ]
    return {
        Pass.FORWARD: forward,
        Pass.BACKWARD: total(tuple(backward)),
        Pass.BACKWARD_WEIGHT: total(tuple(weights)),
        Pass.RECOMPUTE: forward if again else 0,
    }


def _stages(layers: Sequence[MoeLayer], homes: Sequence[int]) -> tuple[StageExperts, ...]:
    found = []
    for stage, home in enumerate(homes):
        mine = [one for one in layers if one.layer.stage == stage]
        found.append(
            StageExperts(
                stage=stage,
                home=home,
                layers=tuple(one.layer.number for one in mine),
                takes={way: total(0, *(one.takes[way] for one in mine)) for way in Pass},
                contained={way: total(0, *(one.contained[way] for one in mine)) for way in Pass},
            )
        )
    return tuple(found)
