"""An independent search for the best straight partition: all down-sets, exact integers."""

from collections.abc import Sequence

import numpy as np

from service.core.models.graph import Model


def best_four_stages(model: Model, costs: Sequence[int]) -> tuple[int, list[list[str]]]:
    """The least possible cost of the costliest of four stages, and stages that reach it.

    States are the sets of layers that hold all they need (one for each antichain). Once the set of
    the first two stages is fixed the two halves are independent, so all pairs of nested sets are
    looked at, except where half a half costs too much already. Input layers cost nothing, are no
    part of the states and go to the stage that first needs them.
    """
    count = len(model.layers)
    needs = [0] * count
    for producer, consumers in zip(model.producers, model.consumers, strict=True):
        for consumer in consumers if producer is not None else ():
            needs[consumer] |= 1 << (producer or 0)
    inputs = sum(1 << i for i in range(count) if model.layers[i].is_input)
    layers = [i for i in range(count) if not inputs >> i & 1]

    sets, waiting = {0}, [0]
    while waiting:
        closed = waiting.pop()
        for layer in layers:
            larger = closed | 1 << layer
            if larger not in sets and not needs[layer] & ~inputs & ~closed:
                sets.add(larger)
                waiting.append(larger)
    states = sorted(sets)
    member = np.array([[state >> layer & 1 for layer in layers] for state in states], dtype=bool)
    cost = member @ np.array([costs[layer] for layer in layers], dtype=np.int64)
    total = int(cost.max())

    best: tuple[int, tuple[int, int, int]] | None = None
    for middle, held in enumerate(member):
        costlier = max(int(cost[middle]), total - int(cost[middle]))
        if best is not None and costlier >= 2 * best[0]:
            continue
        below = np.flatnonzero(~member[:, ~held].any(axis=1))
        above = np.flatnonzero(member[:, held].all(axis=1))
        first = np.maximum(cost[below], cost[middle] - cost[below])
        last = np.maximum(cost[above] - cost[middle], total - cost[above])
        slowest = int(max(first.min(), last.min()))
        if best is None or slowest < best[0]:
            chosen = int(below[first.argmin()]), middle, int(above[last.argmin()])
            best = slowest, chosen
    if best is None:
        raise ValueError("a model without layers has no stages")
    ends = [0, *(states[index] for index in best[1]), states[-1]]
    stage_of = {
        layer: next(stage for stage in range(4) if ends[stage + 1] >> layer & 1) for layer in layers
    }
    for layer in range(count):
        if inputs >> layer & 1:
            needed = [stage_of[other] for other in layers if needs[other] >> layer & 1]
            stage_of[layer] = min(needed, default=0)
    stages = [
        [model.layers[layer].name for layer in range(count) if stage_of[layer] == stage]
        for stage in range(4)
    ]
    return best[0], stages
