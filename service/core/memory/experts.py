"""What experts add to the memory of a rank beside weights and activations, and of which rank it is.

The buffers of an exchange hold what a rank sends and what it receives, its own copies among both,
for as long as the operation runs. One exchange follows the other, so the largest counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.memory.terms import ExpertRank
from service.core.moe.settings import Dispatcher
from service.core.plans.held_weights import most_experts
from service.core.plans.moe.received import busiest_ranks, share_of_each
from service.core.plans.moe.results import GroupLoad, MoeLayer, PlanMoe
from service.core.plans.plan import ResolvedPlan
from service.core.plans.schedule import has_backward

__all__ = ["DispatchBuffers", "dispatch_buffers", "expert_ranks"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DispatchBuffers:
    """Of one pipeline rank: `size` in bytes on the rank of its expert groups that needs most."""

    size: int
    rule: str


def expert_ranks(resolved: ResolvedPlan) -> dict[int, ExpertRank]:
    """By pipeline rank, of those that have layers with experts; none of a plan without `moe`."""
    moe = resolved.moe
    if moe is None:
        return {}
    found: dict[int, ExpertRank] = {}
    for home, busiest in busiest_ranks(moe, resolved.sizes).items():
        here = [moe.inputs.layers[number] for number in busiest.rows]
        rows, mean = busiest.most
        settings, degree = moe.inputs.settings, moe.inputs.expert
        one = ExpertRank(
            rank=busiest.rank,
            device=resolved.placement[busiest.rank].device,
            group=busiest.group,
            expert=busiest.expert,
            rows=rows,
            mean_rows=mean,
            experts=max(most_experts(settings, layer.experts, degree) for layer in here),
        )
        found[home] = one
        # In a schedule of two directions a stage is on two pipeline ranks, which run alike.
        for other in {rank for layer in here for rank in moe.inputs.homes[layer.stage]}:
            found.setdefault(other, one)
    return found


def dispatch_buffers(resolved: ResolvedPlan, stages: Sequence[int]) -> DispatchBuffers | None:
    """Of a pipeline rank with these stages; None where none has experts."""
    moe = resolved.moe
    if moe is None:
        return None
    layers = [moe.layers[number] for stage in stages for number in moe.stages[stage].layers]
    if not layers:
        return None
    share = moe.inputs.settings.rows_percentile
    backward = has_backward(resolved.plan)
    by_rank = share_of_each(
        layers,
        resolved.sizes,
        share,
        lambda one, groups: _buffers(moe, one, groups, backward=backward),
    )
    how = "the most" if share == 1 else f"the {share:.6g} quantile"
    rule = (
        f"copies of tokens that a rank sends and receives in one exchange of experts, {how} over "
        "layers and microbatches"
    )
    return DispatchBuffers(int(by_rank.max()), rule)


def _buffers(
    moe: PlanMoe, one: MoeLayer, groups: Sequence[GroupLoad], *, backward: bool
) -> Int64Array:
    """(ranks of all groups,) bytes; a combine has the copies of its dispatch the other way.

    Who gathers sends the same tokens to all, from one buffer.
    """
    payloads = moe.inputs.settings.payloads
    used = [payloads.forward_dispatch, payloads.forward_combine]
    if backward:
        used += [payloads.backward_dispatch, payloads.backward_combine]
    size = max(payload.bytes_of(one.layer.hidden_size) for payload in used)
    gathers = moe.inputs.settings.dispatcher is Dispatcher.ALL_GATHER
    copies = [
        (load.tokens if gathers else load.sent + load.staying) + load.received + load.staying
        for load in groups
    ]
    return np.concatenate(copies) * size
