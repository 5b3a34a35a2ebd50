"""Which layers of a plan drop activations and compute them again."""

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.models.graph import Model
from service.core.plans.plan import Plan
from service.core.plans.schedule import has_backward
from service.core.profiles.measurement import Recompute
from service.core.profiles.patterns import is_pattern, name_expression

__all__ = ["layer_policies", "recomputes"]


def recomputes(plan: Plan) -> bool:
    """Whether the plan asks for any recomputation."""
    policies = {plan.recompute, *(policy for _, policy in plan.recompute_layers)}
    return policies != {Recompute.NONE.value}


def layer_policies(plan: Plan, model: Model) -> tuple[Recompute, ...]:
    """The policy of each layer, in execution order: of its name, else of its pattern, else default.

    Without a backward nothing is computed again, whatever the plan asks for. Raises `InvalidInput`
    with each entry that fits no layer, and each whose pattern gives a layer another policy than an
    earlier one.
    """
    default = Recompute(plan.recompute)
    named = {name: Recompute(policy) for name, policy in plan.recompute_layers}
    faults = [
        _fault(FaultCode.UNKNOWN_NAME, name, f"no layer is called {name!r}")
        for name in named
        if not is_pattern(name) and name not in model.positions
    ]
    of_pattern: dict[str, tuple[str, Recompute]] = {}
    for pattern, policy in named.items():
        if not is_pattern(pattern):
            continue
        expression = name_expression(pattern)
        fitting = [layer.name for layer in model.layers if expression.match(layer.name)]
        if not fitting:
            detail = f"no layer of the model fits {pattern!r}"
            faults.append(_fault(FaultCode.UNKNOWN_NAME, pattern, detail))
        clashes = [
            layer
            for layer in fitting
            if layer not in named and of_pattern.setdefault(layer, (pattern, policy))[1] != policy
        ]
        if clashes:
            other, theirs = of_pattern[clashes[0]]
            detail = (
                f"layer {clashes[0]!r} fits this ({policy.value}) and {other!r} ({theirs.value}): "
                "name the layer, or let one pattern give way"
            )
            faults.append(_fault(FaultCode.INCONSISTENT, pattern, detail))
    if faults:
        raise InvalidInput(faults)
    if not has_backward(plan):
        return (Recompute.NONE,) * len(model.layers)
    return tuple(
        named.get(layer.name) or of_pattern.get(layer.name, ("", default))[1]
        for layer in model.layers
    )


def _fault(code: FaultCode, name: str, detail: str) -> Fault:
    return Fault(code, ("recompute", "layers", name), detail)
