"""Stage times with their experts in them."""

from collections.abc import Sequence
from dataclasses import replace

from service.core.amounts import Amount, combine, smallest, total
from service.core.plans.moe.results import Pass, PlanMoe, StageExperts
from service.core.plans.plan import ResolvedStage

__all__ = ["overdrawn_stages", "with_experts"]

_FIELDS = {
    Pass.FORWARD: "forward_picoseconds",
    Pass.BACKWARD: "backward_picoseconds",
    Pass.BACKWARD_WEIGHT: "backward_weight_picoseconds",
    Pass.RECOMPUTE: "recompute_picoseconds",
}


def with_experts(
    stages: Sequence[ResolvedStage], moe: PlanMoe, *, splits: bool
) -> tuple[ResolvedStage, ...]:
    """Each stage with what its experts take, less what of it its costs had in them.

    Exchanges belong to the half of a backward that gives the gradients of inputs. `splits` says
    whether the schedule runs the halves apart. No time falls below zero.
    """
    return tuple(
        _with(stage, experts, moe, splits=splits) if experts.layers else stage
        for stage, experts in zip(stages, moe.stages, strict=True)
    )


def overdrawn_stages(stages: Sequence[ResolvedStage], moe: PlanMoe) -> tuple[int, ...]:
    """Stages that cost less than what their costs are said to contain."""
    return tuple(
        stage.stage
        for stage, experts in zip(stages, moe.stages, strict=True)
        if any(
            given is not None and smallest(_less(given, experts.contained[way])) < 0
            for way, field in _FIELDS.items()
            if (given := getattr(stage, field)) is not None
        )
    )


def _with(
    stage: ResolvedStage, experts: StageExperts, moe: PlanMoe, *, splits: bool
) -> ResolvedStage:
    takes, contained = experts.takes, experts.contained

    def changed(way: Pass) -> Amount:
        return _changed(getattr(stage, _FIELDS[way]), takes[way], contained[way])

    backward = changed(Pass.BACKWARD)
    of_inputs, of_weights = stage.backward_input_picoseconds, stage.backward_weight_picoseconds
    if of_inputs is not None and of_weights is not None:
        whole, weights = Pass.BACKWARD, Pass.BACKWARD_WEIGHT
        of_weights = changed(weights)
        of_inputs = _changed(
            of_inputs,
            _less(takes[whole], takes[weights]),
            _less(contained[whole], contained[weights]),
        )
        backward = total(of_inputs, of_weights)
    return replace(
        stage,
        forward_picoseconds=changed(Pass.FORWARD),
        backward_picoseconds=backward,
        backward_input_picoseconds=of_inputs,
        backward_weight_picoseconds=of_weights,
        recompute_picoseconds=changed(Pass.RECOMPUTE),
        layer_gradient_picoseconds=_by_layer(stage, experts, moe, splits=splits),
    )


def _changed(given: Amount, taken: Amount, contained: Amount) -> Amount:
    return combine(lambda base, more, less: max(0, base - less) + more, given, taken, contained)


def _less(whole: Amount, part: Amount) -> Amount:
    return combine(lambda one, other: one - other, whole, part)


def _by_layer(
    stage: ResolvedStage, experts: StageExperts, moe: PlanMoe, *, splits: bool
) -> tuple[Amount, ...] | None:
    """What each layer takes of the operation that gives the gradients of its weights."""
    if stage.layer_gradient_picoseconds is None:
        return None
    found = list(stage.layer_gradient_picoseconds)
    way = Pass.BACKWARD_WEIGHT if splits else Pass.BACKWARD
    for number in experts.layers:
        layer = moe.layers[number]
        place = layer.layer.place
        if place is not None:
            found[place] = _changed(found[place], layer.takes[way], layer.contained[way])
    return tuple(found)
