"""What a plan states of the training beyond its cost: what makes two plans do the same work.

None of it changes a number. Where the plan says how its experts run (`moe`), what a contract states
of them has to agree with that. Two plans whose contracts differ train differently, so their times
are not alike (`service.core.plans.likeness`).
"""

from dataclasses import dataclass
from enum import StrEnum

from service.core.errors import Fault, FaultCode, Path
from service.core.moe.overflow import Capacity, OverflowPolicy
from service.core.moe.settings import MoeSettings
from service.core.schedules.catalogue import ScheduleFamily
from service.core.schedules.shape import Backward, Shape
from service.core.schedules.weight_versions import Update

__all__ = [
    "Contract",
    "LossScaling",
    "WeightUpdate",
    "check_contract",
    "weight_update_of",
]


class WeightUpdate(StrEnum):
    """When weights change, and which weights a microbatch meets."""

    NONE = "none"  # forwards only: nothing is trained
    PER_GLOBAL_BATCH = "per_global_batch"  # all of a batch meet the same weights, then they change
    PER_GLOBAL_BATCH_DELAYED = "per_global_batch_delayed"  # the same with weights one update old
    PER_MICROBATCH = "per_microbatch"  # each backward changes them; versions differ by stage


class LossScaling(StrEnum):
    """How losses are scaled so that small gradients survive a narrow format."""

    NONE = "none"
    STATIC = "static"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Contract:
    """What a plan states; None where it says nothing.

    `weight_update` follows from the schedule: who states it has it checked.
    """

    weight_update: WeightUpdate | None = None
    loss_scaling: LossScaling | None = None
    router_policy: str | None = None
    overflow: OverflowPolicy | None = None
    capacity_factor: float | None = None
    dropped_token_fraction: float | None = None
    random_state: str | None = None

    @property
    def states_routing(self) -> bool:
        """Whether it says anything of experts."""
        of_routing = (
            self.router_policy,
            self.overflow,
            self.capacity_factor,
            self.dropped_token_fraction,
        )
        return any(stated is not None for stated in of_routing)


_DROPLESS = frozenset({OverflowPolicy.DROPLESS, OverflowPolicy.DROPLESS_PADDED})


def weight_update_of(family: ScheduleFamily, shape: Shape) -> WeightUpdate:
    """When the schedule changes weights: after the drain, unless it is never drained."""
    if family.backward(shape) is Backward.NONE:
        return WeightUpdate.NONE
    return {
        None: WeightUpdate.PER_GLOBAL_BATCH,
        Update.EVERY_ITERATION: WeightUpdate.PER_GLOBAL_BATCH_DELAYED,
        Update.EVERY_MICROBATCH: WeightUpdate.PER_MICROBATCH,
    }[family.update]


def check_contract(
    contract: Contract, family: ScheduleFamily, shape: Shape, moe: MoeSettings | None = None
) -> list[Fault]:
    """What a contract states against the schedule, against itself, and against `moe`."""
    faults = [] if moe is None else _against_moe(contract, moe.capacity)
    update, stated = weight_update_of(family, shape), contract.weight_update
    if stated not in (None, update):
        detail = (
            f"weights change {update.value} under {family.name}; state that or leave this out, or "
            "use another schedule"
        )
        faults.append(_fault(FaultCode.INCONSISTENT, "weight_update", detail))
    if contract.overflow in _DROPLESS:
        if contract.capacity_factor is not None:
            detail = f"{contract.overflow.value} has no capacity: leave one of the two out"
            faults.append(_fault(FaultCode.EXCLUSIVE_FIELDS, "capacity_factor", detail))
        if contract.dropped_token_fraction:
            detail = f"{contract.overflow.value} drops no token: give 0 or leave this out"
            faults.append(_fault(FaultCode.INCONSISTENT, "dropped_token_fraction", detail))
    return faults


def _against_moe(contract: Contract, capacity: Capacity) -> list[Fault]:
    faults = []
    if contract.overflow not in (None, capacity.overflow):
        detail = f"moe.overflow is {capacity.overflow.value}: state that, or leave this out"
        faults.append(_fault(FaultCode.INCONSISTENT, "overflow", detail))
    if contract.capacity_factor not in (None, capacity.factor):
        has = (
            f"{capacity.overflow.value} in moe has no capacity"
            if capacity.factor is None
            else f"moe.capacity_factor is {capacity.factor}"
        )
        detail = f"{has}: state the same, or leave this out"
        faults.append(_fault(FaultCode.INCONSISTENT, "capacity_factor", detail))
    return faults


def _fault(code: FaultCode, field: str, detail: str) -> Fault:
    path: Path = ("contract", field)
    return Fault(code, path, detail)
