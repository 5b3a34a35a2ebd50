"""What the experts of a plan say of its contract: how tokens are routed, how many are dropped."""

import re

import numpy as np

from service.core.amounts import SizeClasses
from service.core.errors import Fault, FaultCode
from service.core.plans.contract import Contract
from service.core.plans.moe.inputs import ExpertLayer
from service.core.plans.moe.results import PlanMoe

__all__ = ["contract_faults", "dropped_fraction", "router_policy"]

# A stated fraction was measured or rounded.
_ABSOLUTE, _RELATIVE = 0.0005, 0.01

_TOP = re.compile(r"top[-_ ]?(\d+)", re.IGNORECASE)


def router_policy(moe: PlanMoe) -> str:
    """How many experts a token chooses: top2, or several of these."""
    return " and ".join(f"top{number}" for number in sorted({one.top_k for one in _layers(moe)}))


def dropped_fraction(moe: PlanMoe, sizes: SizeClasses) -> float:
    """Of all assignments of an iteration, in all layers and groups; 0 of none."""
    counts = [sizes.microbatches]
    if sizes.count > 1:
        counts = np.bincount(sizes.of_microbatch, minlength=sizes.count).tolist()
    asked = dropped = 0
    for layer in moe.layers:
        for run, count in zip(layer.runs, counts, strict=True):
            asked += count * sum(load.asked for load in run.groups)
            dropped += count * sum(int(load.dropped.sum()) for load in run.groups)
    return dropped / asked if asked else 0.0


def contract_faults(contract: Contract, moe: PlanMoe, sizes: SizeClasses) -> list[Fault]:
    """Where a contract states other drops than the routing has, or another number of choices."""
    faults, stated = [], contract.dropped_token_fraction
    if stated is not None:
        found = dropped_fraction(moe, sizes)
        if abs(stated - found) > _ABSOLUTE + _RELATIVE * found:
            detail = (
                f"under the routing and capacity of moe {found:.4f} of the tokens are dropped: "
                "state that, or leave this out"
            )
            path = ("contract", "dropped_token_fraction")
            faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    policy = contract.router_policy
    named = None if policy is None else _TOP.fullmatch(policy)
    if named is not None and {int(named[1])} != {one.top_k for one in _layers(moe)}:
        detail = f"tokens choose by {router_policy(moe)}: state that, or leave this out"
        faults.append(Fault(FaultCode.INCONSISTENT, ("contract", "router_policy"), detail))
    return faults


def _layers(moe: PlanMoe) -> tuple[ExpertLayer, ...]:
    return moe.inputs.layers
