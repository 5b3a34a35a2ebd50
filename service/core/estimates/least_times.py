"""What the operations of a plan take at least: exchanges as bounds have them, not as predicted.

Stage times are what layers cost, with what their experts are expected to take. Of that, what moves
tokens is a prediction: effective rates, latencies, packing, one part after the other. No schedule
of a layer goes below its products, nor below what the fullest link needs for its bytes at the
nominal rate, dispatches and combines together, however well these overlap.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from service.core.amounts import Amount
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.moe.results import ExpertPass, Pass, PlanMoe
from service.core.plans.plan import ResolvedPlan
from service.core.schedules.stage_times import StageTimes
from service.core.topology.flows.network import Network
from service.core.topology.flows.study import flow_study
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["exchanges_assumed", "least_times"]

Int64Array = npt.NDArray[np.int64]


def least_times(simulated: SimulatedPlan) -> StageTimes:
    """The times of the plan's timeline, less what predictions of exchanges are above their bounds.

    Of copies that are only expected the fewest count. The same times where a plan has no experts.
    """
    resolved, times = simulated.resolved, simulated.timeline.times
    if resolved.moe is None:
        return times
    surplus = _Surplus(resolved, resolved.moe)
    least = {
        "forward": _less(times.forward, surplus.table(Pass.FORWARD)),
        "backward": _less(times.backward, surplus.table(Pass.BACKWARD)),
        "recompute": _less(times.recompute, surplus.table(Pass.RECOMPUTE)),
    }
    if times.backward_input is not None:
        of_inputs = surplus.table(Pass.BACKWARD, of_inputs=True)
        least["backward_input"] = _less(times.backward_input, of_inputs)
    return replace(times, **least)


def exchanges_assumed(simulated: SimulatedPlan) -> tuple[str, ...]:
    """What bounds assume of exchanges; nothing of plans without."""
    resolved = simulated.resolved
    if resolved.moe is None or resolved.cluster is None:
        return ()
    said = (
        "what experts exchange keeps to its pinned paths at nominal rates, and has the fewest "
        "bytes that are known of its routing"
    )
    return (said,)


def _less(times: Int64Array, surplus: Int64Array) -> Int64Array:
    least: Int64Array = np.maximum(times - surplus, 0)
    return least


class _Surplus:
    """By how much the predicted steps of layers with experts are above their bounds."""

    def __init__(self, resolved: ResolvedPlan, moe: PlanMoe) -> None:
        self._resolved, self._moe = resolved, moe
        self._network: Network | None = None
        if resolved.cluster is not None:
            self._network = flow_study(resolved.cluster).network
        self._exchanges: dict[ExpertPass, int] = {}  # alike layers have the same runs

    def table(self, way: Pass, *, of_inputs: bool = False) -> Int64Array:
        """(stages, microbatches or 1) picoseconds; of a backward or of its half for the inputs."""
        sizes = self._resolved.sizes
        amounts: list[Amount] = []
        for experts in self._moe.stages:
            by_class = tuple(
                sum(
                    self._of_layer(number, size_class, way, experts.home, of_inputs=of_inputs)
                    for number in experts.layers
                )
                for size_class in range(sizes.count)
            )
            amounts.append(by_class[0] if len(set(by_class)) == 1 else by_class)
        return sizes.table(amounts)

    def _of_layer(
        self, number: int, size_class: int, way: Pass, home: int, *, of_inputs: bool
    ) -> int:
        made = self._moe.layers[number].exchanging(size_class, way, home)
        if made is None:
            return 0
        group = self._moe.group
        apart = int(made.weight_products[group]) if of_inputs else 0
        least = int(made.products[group]) - apart
        if not self._moe.inputs.settings.overlap.shared_expert:
            # Else a part of the rest of the layer may run beside what is on the links.
            least = max(least, self._exchange(made))
        return max(0, int(made.step[group]) - apart - least)

    def _exchange(self, made: ExpertPass) -> int:
        """What the fullest link needs at least, rounded down."""
        if made not in self._exchanges:
            costs = [one for one in (made.dispatch, made.combine) if one is not None]
            longest = 0
            if self._network is not None and len(costs) == 2:
                loads = costs[0].least.plus(costs[1].least)
                resources, sizes = loads.resources(self._network)
                seconds = sizes / self._network.capacity[resources]
                longest = int(seconds.max(initial=0.0) * PICOSECONDS_PER_SECOND)
            self._exchanges[made] = longest
        return self._exchanges[made]
