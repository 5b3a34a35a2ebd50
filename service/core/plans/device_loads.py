"""The loads of a plan's devices by the rule that its partition names."""

from collections.abc import Sequence

from service.core.amounts import SizeClasses, largest
from service.core.errors import Fault, FaultCode, InvalidInput, Path, some_of
from service.core.models.cuts import SkipRouting
from service.core.models.graph import Model
from service.core.plans.loads import DeviceLoad, carried, straight
from service.core.plans.plan import Plan, ResolvedStage, Statement
from service.core.plans.schedule import has_backward
from service.core.profiles.profile import Profile
from service.core.profiles.transfers import RecordedTransfer
from service.core.schedules.shape import Placement as StagePlacement

__all__ = ["device_loads", "load_assumptions"]

_RULE: Path = ("partition", "load_rule")


def device_loads(
    plan: Plan,
    model: Model,
    profile: Profile | None,
    stage_of_layer: Sequence[int],
    stages: Sequence[ResolvedStage],
    stage_ranks: StagePlacement,
    microbatch_size: int | None,
    sizes: SizeClasses,
) -> tuple[DeviceLoad, ...] | None:
    """The load of each pipeline rank; None where the partition names no rule.

    Computing is what the stages of the rank take; handing on is what the profile recorded at the
    plan's microbatch size, straight or through the stages between as `skip_routing` says, and of
    backwards only where the schedule has them.

    Raises `InvalidInput` where no transfers were recorded, where they name other layers than the
    model's, and for plans in which one device does not hold a stage for itself.
    """
    partition = plan.partition
    if partition is None or partition.load_rule is None:
        return None
    faults = _unlike_the_rule(plan, stage_ranks, sizes)
    every = () if profile is None else profile.transfers
    recorded = [transfer for transfer in every if transfer.microbatch_size == microbatch_size]
    if not recorded:
        known = sorted({transfer.microbatch_size for transfer in every})
        at = f"it has them at {', '.join(map(str, known))}" if known else "it has none at all"
        detail = (
            f"the rule charges recorded `transfers`, and the profile has none at microbatch_size "
            f"{microbatch_size}: {at}"
        )
        faults.append(Fault(FaultCode.MISSING_PROFILE_POINT, _RULE, detail))
    faults += _unknown_layers(recorded, model)
    if faults:
        raise InvalidInput(faults)
    rank_of_stage = stage_ranks[0]
    count = max(rank_of_stage) + 1
    compute, sending, receiving = ([0] * count for _ in range(3))
    for stage in stages:
        work = (stage.forward_picoseconds, stage.backward_picoseconds, stage.recompute_picoseconds)
        compute[rank_of_stage[stage.stage]] += sum(map(largest, work))
    way = carried if partition.skip_routing is SkipRouting.RELAY else straight
    for transfer in recorded:
        if transfer.backward and not has_backward(plan):
            continue
        home = stage_of_layer[model.positions[transfer.source]]
        targets = [stage_of_layer[model.positions[target]] for target in transfer.targets]
        for ranks, time in zip(
            way(rank_of_stage, home, targets), (sending, receiving), strict=True
        ):
            for rank in ranks:
                time[rank] += transfer.picoseconds
    columns = zip(range(count), compute, sending, receiving, strict=True)
    return tuple(DeviceLoad(*column) for column in columns)


def _unlike_the_rule(plan: Plan, stage_ranks: StagePlacement, sizes: SizeClasses) -> list[Fault]:
    def fault(detail: str) -> Fault:
        return Fault(FaultCode.NOT_SUPPORTED, _RULE, detail)

    found = []
    if plan.degrees.tensor > 1 or plan.degrees.context > 1:
        found.append(fault("the rule knows devices with whole layers: use tensor 1 and context 1"))
    if len(stage_ranks) > 1:
        found.append(fault("the rule knows stages with one place: use a one-way schedule"))
    if sizes.count > 1:
        found.append(fault("the rule knows one microbatch: let all have the same size"))
    return found


def _unknown_layers(recorded: Sequence[RecordedTransfer], model: Model) -> list[Fault]:
    named = {name for transfer in recorded for name in (transfer.source, *transfer.targets)}
    unknown = sorted(named - set(model.positions))
    if not unknown:
        return []
    detail = (
        f"the transfers of the profile name layers that the model does not have: {some_of(unknown)}"
    )
    return [Fault(FaultCode.INCONSISTENT, ("costs", "profile"), detail)]


def load_assumptions(plan: Plan, loads: Sequence[DeviceLoad] | None) -> tuple[Statement, ...]:
    """What a load by a rule is, and is not."""
    if loads is None or plan.partition is None or plan.partition.load_rule is None:
        return ()
    how = "straight to each stage that takes it"
    if plan.partition.skip_routing is SkipRouting.RELAY:
        how = "through each stage between"
    return (
        Statement(
            "load_rule",
            f"loads are counted by the rule of {plan.partition.load_rule.value}: the work of one "
            "microbatch and, one after the other, the recorded times of all tensors that leave a "
            f"device and enter it, each {how}; they reproduce published values and are no part of "
            "the simulation",
        ),
    )
