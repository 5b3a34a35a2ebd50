"""The layers with experts of a plan priced again, with something about them changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from service.core.moe.settings import MoeSettings
from service.core.plans.moe.inputs import MoeInputs, uniform_inputs
from service.core.plans.moe.pricing import Pricing
from service.core.plans.moe.results import GroupLoad, LayerRun, MoeLayer, PlanMoe
from service.core.plans.plan import ResolvedPlan

__all__ = ["ExpertTotals", "Repriced", "class_microbatches", "stage_devices", "totals_of"]


@dataclass(frozen=True, slots=True)
class ExpertTotals:
    """Over layers, and over the microbatches of an iteration, of the group that stands for all.

    Assignments `asked`, `dropped`, on the `fallback` path and `rerouted`; `rows` that travel and
    are computed; `most_rank_rows` of any rank in any layer and microbatch; and `picoseconds` that
    the layers take, one after the other, recomputation included.
    """

    asked: int
    dropped: int
    fallback: int
    rerouted: int
    rows: int
    most_rank_rows: int
    capacity_rows: int | None
    picoseconds: int

    @property
    def dropped_fraction(self) -> float:
        """Of all assignments; 0 of none."""
        return self.dropped / self.asked if self.asked else 0.0

    @property
    def padded_fraction(self) -> float:
        """Of all rows, those that no token asked for; 0 of none."""
        kept = self.asked - self.dropped - self.fallback
        return 1 - kept / self.rows if self.rows else 0.0


def class_microbatches(resolved: ResolvedPlan) -> list[int]:
    """How many microbatches of an iteration are of each size class."""
    sizes = resolved.sizes
    if sizes.count == 1:
        return [sizes.microbatches]
    counted: list[int] = np.bincount(sizes.of_microbatch, minlength=sizes.count).tolist()
    return counted


def totals_of(
    resolved: ResolvedPlan, moe: PlanMoe, runs: Mapping[int, tuple[LayerRun, ...]] | None = None
) -> ExpertTotals:
    """Of a plan's layers; `runs` has those of some layers, by number, in place of the plan's."""
    counts = class_microbatches(resolved)
    asked = dropped = fallback = rerouted = rows = most = time = 0
    capacity = None
    for count, load, spent in _each(moe, runs or {}, counts):
        asked += count * load.asked
        dropped += count * int(load.dropped.sum())
        fallback += count * int(load.fallback.sum())
        rerouted += count * int(load.rerouted.sum())
        rows += count * int(load.slot_rows.sum())
        most = max(most, int(load.rank_rows.max(initial=0)))
        time += count * spent
        if load.capacity is not None:
            capacity = max(capacity or 0, load.capacity)
    return ExpertTotals(asked, dropped, fallback, rerouted, rows, most, capacity, time)


def _each(
    moe: PlanMoe, runs: Mapping[int, tuple[LayerRun, ...]], counts: list[int]
) -> Iterator[tuple[int, GroupLoad, int]]:
    """For each layer and size class: its microbatches, and what the group has and takes in one."""
    for layer in moe.layers:
        for count, run in zip(counts, runs.get(layer.layer.number, layer.runs), strict=True):
            forward = int(run.forward.step[moe.group])
            spent = forward * (2 if layer.repeats else 1)
            if run.backward is not None:
                spent += int(run.backward.step[moe.group])
            yield count, run.groups[moe.group], spent


def stage_devices(resolved: ResolvedPlan, moe: PlanMoe) -> list[list[str]] | None:
    """Those of each stage, None without a topology."""
    if resolved.cluster is None:
        return None
    placed, groups = resolved.placement, moe.inputs.groups
    return [
        [placed[rank].device or "" for home in homes for rank in groups[home].ranks.flat]
        for homes in moe.inputs.homes
    ]


class Repriced:
    """A plan's layers with other settings, or with other tokens; everything else stays.

    Raises `InvalidInput` as resolving the plan does.
    """

    def __init__(self, resolved: ResolvedPlan, moe: PlanMoe, inputs: MoeInputs) -> None:
        self._moe, self.inputs = moe, inputs
        plan = replace(resolved.plan, moe=inputs.settings)
        self._pricing = Pricing(
            plan, resolved.model, inputs, stage_devices(resolved, moe), resolved.cluster
        )

    @classmethod
    def with_settings(
        cls, resolved: ResolvedPlan, moe: PlanMoe, settings: MoeSettings
    ) -> "Repriced":
        """The same tokens under other settings."""
        return cls(resolved, moe, replace(moe.inputs, settings=settings))

    @classmethod
    def evenly(cls, resolved: ResolvedPlan, moe: PlanMoe) -> "Repriced":
        """The same settings with tokens that choose evenly."""
        return cls(resolved, moe, uniform_inputs(moe.inputs))

    def runs(self, layer: MoeLayer) -> tuple[LayerRun, ...]:
        """Those of a layer, by size class."""
        home = self._moe.stages[layer.layer.stage].home
        mine = self.inputs.layers[layer.layer.number]
        return tuple(self._pricing.run(mine, number, home) for number in range(len(layer.runs)))

    def all_runs(self) -> dict[int, tuple[LayerRun, ...]]:
        """Those of all layers, by their numbers."""
        return {layer.layer.number: self.runs(layer) for layer in self._moe.layers}
