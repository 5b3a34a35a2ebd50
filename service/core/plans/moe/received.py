"""The rank of each expert group for whose rows memory is held, and what it receives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.amounts import SizeClasses
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.moe.results import GroupLoad, MoeLayer, PlanMoe

__all__ = ["BusiestRank", "busiest_ranks", "share_of_each"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BusiestRank:
    """Of the ranks of a pipeline rank the one that keeps most for the rows that it receives.

    `rank` is its number in the plan, `group` that of its expert group, in which it has the
    coordinate `expert`; the first of the ranks that split its experts. `rows` has for each layer
    with experts on the pipeline rank, by its number among all, those for which memory is held in a
    microbatch of each size class, and `mean_rows` the mean over the ranks of all groups.
    """

    home: int
    rank: int
    group: int
    expert: int
    rows: Mapping[int, tuple[int, ...]]
    mean_rows: Mapping[int, tuple[float, ...]]

    @property
    def most(self) -> tuple[int, float]:
        """Its rows in the layer and microbatch in which it has most, and the mean of those."""
        return max(
            pair
            for number, rows in self.rows.items()
            for pair in zip(rows, self.mean_rows[number], strict=True)
        )


def busiest_ranks(moe: PlanMoe, sizes: SizeClasses) -> dict[int, BusiestRank]:
    """By pipeline rank, of those that have layers with experts.

    A layer is given memory for the most rows that come to a rank in any microbatch of as many
    tokens, but for no more than the percentile that the plan states of all its layers and
    microbatches. Which layer a microbatch finds full is chance, so the most counts in each.
    """
    found: dict[int, list[MoeLayer]] = {}
    for layer in moe.layers:
        found.setdefault(moe.stages[layer.layer.stage].home, []).append(layer)
    return {home: _busiest(moe.inputs, home, layers, sizes) for home, layers in found.items()}


def _busiest(
    inputs: MoeInputs, home: int, layers: Sequence[MoeLayer], sizes: SizeClasses
) -> BusiestRank:
    cap = share_of_each(layers, sizes, inputs.settings.rows_percentile, _rank_rows)
    held: dict[int, list[Int64Array]] = {}
    kept = np.zeros(len(cap), dtype=np.int64)
    for one in layers:
        of_class = _most_of_like(one, inputs.tokens, cap)
        held[one.layer.number] = of_class
        kept += np.max(of_class, axis=0) * _elements(one.layer, inputs.expert_tensor)
    place = int(kept.argmax())
    group, expert = divmod(place, inputs.expert)
    return BusiestRank(
        home=home,
        rank=int(inputs.groups[home].ranks[group, expert * inputs.expert_tensor]),
        group=group,
        expert=expert,
        rows={number: tuple(int(rows[place]) for rows in of) for number, of in held.items()},
        mean_rows={
            one.layer.number: tuple(
                float(np.mean([load.rank_rows for load in run.groups])) for run in one.runs
            )
            for one in layers
        },
    )


def share_of_each(
    layers: Sequence[MoeLayer],
    sizes: SizeClasses,
    share: float,
    of: Callable[[MoeLayer, Sequence[GroupLoad]], Int64Array],
) -> Int64Array:
    """(ranks,) the least number of each rank that at least this share of all its own, one for each
    layer and microbatch, does not exceed. `of` has (ranks,) those of one layer's groups.
    """
    values: list[Int64Array] = []
    weights: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for one, number, count in _runs(layers, sizes):
        # What is alike is one object, however many layers and microbatches have it.
        key = id(one.runs[number]), one.layer.hidden_size
        if key in place:
            weights[place[key]] += count
            continue
        place[key] = len(values)
        values.append(of(one, one.runs[number].groups))
        weights.append(count)
    table = np.array(values)
    if share == 1:
        most: Int64Array = table.max(axis=0)
        return most
    order = np.argsort(table, axis=0, kind="stable")
    counted = np.cumsum(np.array(weights, dtype=np.int64)[order], axis=0)
    # Products such as 0.07 x 100 are a bit above the whole number that they mean.
    wanted = max(1, int(np.ceil(round(share * sum(weights), 9))))
    first = np.argmax(counted >= wanted, axis=0)
    columns = np.arange(table.shape[1])
    found: Int64Array = table[order[first, columns], columns]
    return found


def _runs(layers: Sequence[MoeLayer], sizes: SizeClasses) -> Iterator[tuple[MoeLayer, int, int]]:
    """Each layer with each size class, and how many microbatches that is."""
    counts = [sizes.microbatches]
    if sizes.count > 1:
        counts = np.bincount(sizes.of_microbatch, minlength=sizes.count).tolist()
    for one in layers:
        for number, count in enumerate(counts):
            yield one, number, count


def _rank_rows(_: MoeLayer, groups: Sequence[GroupLoad]) -> Int64Array:
    """(groups x expert,)"""
    return np.concatenate([load.rank_rows for load in groups])


def _most_of_like(one: MoeLayer, tokens: Sequence[int], cap: Int64Array) -> list[Int64Array]:
    """For each size class (ranks,) the most rows in any class of as many tokens."""
    most: dict[int, Int64Array] = {}
    seen: set[int] = set()
    for number, run in enumerate(one.runs):
        if id(run) in seen:
            continue
        seen.add(id(run))
        rows = np.minimum(_rank_rows(one, run.groups), cap)
        before = most.get(tokens[number])
        most[tokens[number]] = rows if before is None else np.maximum(before, rows)
    return [most[count] for count in tokens]


def _elements(layer: ExpertLayer, expert_tensor: int) -> int:
    """What a row keeps: before the first product, and between the two."""
    return layer.hidden_size + (3 if layer.gated else 2) * -(-layer.width // expert_tensor)
