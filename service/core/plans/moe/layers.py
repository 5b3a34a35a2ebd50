"""The layers of a plan that have experts, and which layer of the routing each of them reads."""

from collections.abc import Sequence

from service.core.errors import Fault, FaultCode, InvalidInput, some_of
from service.core.models.dimensions import Experts
from service.core.models.graph import Model
from service.core.moe.routing import Routing
from service.core.moe.settings import MoeSettings
from service.core.plans.check_moe import routing_layers_faults
from service.core.plans.moe.inputs import ExpertLayer

__all__ = ["layers_of_model", "layers_of_shape", "with_routing"]


def layers_of_model(model: Model, stage_of_layer: Sequence[int]) -> tuple[ExpertLayer, ...]:
    """Those of a model that is cut into stages. Raises `InvalidInput` where there are none."""
    found: list[ExpertLayer] = []
    seen: dict[int, int] = {}
    for layer, stage in zip(model.layers, stage_of_layer, strict=True):
        place = seen.get(stage, 0)
        seen[stage] = place + 1
        dimensions = layer.dimensions
        if dimensions is None or not isinstance(dimensions.feed_forward, Experts):
            continue
        of = dimensions.feed_forward
        found.append(
            ExpertLayer(
                number=len(found),
                stage=stage,
                name=layer.name,
                place=place,
                hidden_size=dimensions.hidden,
                experts=of.count,
                top_k=of.active,
                width=of.each.width,
                gated=of.each.gated,
                shared_width=None if of.shared is None else of.shared.width,
            )
        )
    if not found:
        detail = (
            "no layer of the model has experts in its dimensions: leave moe out, or say in the "
            "model which layers have them"
        )
        raise InvalidInput([Fault(FaultCode.INCONSISTENT, ("moe",), detail)])
    return tuple(found)


def layers_of_shape(settings: MoeSettings) -> tuple[ExpertLayer, ...]:
    """Those that a plan states for its stages, all alike."""
    shape = settings.shape
    if shape is None:
        raise ValueError("a plan without a model says what its experts are")
    stages = [stage for stage, count in enumerate(shape.layers_per_stage) for _ in range(count)]
    return tuple(
        ExpertLayer(
            number=number,
            stage=stage,
            name=None,
            place=None,
            hidden_size=shape.hidden_size,
            experts=shape.experts,
            top_k=shape.top_k,
            width=shape.width,
            gated=shape.gated,
        )
        for number, stage in enumerate(stages)
    )


def with_routing(
    layers: Sequence[ExpertLayer], settings: MoeSettings, routing: Routing | None
) -> tuple[tuple[int, ...] | None, list[Fault]]:
    """The routing's layer of each of `layers`, None where it has none, and every fault of them.

    As the plan lists them; else in order where the routing has as many layers, and else the one
    whose number is nearest to the place among these layers.
    """
    if routing is None:
        return None, []
    faults = _unlike(layers, routing)
    listed = settings.routing_layers
    if not routing.layers:
        if listed is not None:
            detail = "the routing is one skew for all layers: leave this out"
            here = ("moe", "routing_layers")
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
        return None, faults
    if listed is not None:
        faults += routing_layers_faults(listed, len(layers))
        own = set(routing.layers)
        for index, layer in enumerate(listed):
            if layer not in own:
                has = some_of([str(one) for one in routing.layers])
                detail = f"the routing has no layer {layer}; its layers are {has}"
                path = ("moe", "routing_layers", index)
                faults.append(Fault(FaultCode.UNKNOWN_NAME, path, detail))
        return listed, faults
    if len(routing.layers) == len(layers):
        return tuple(sorted(routing.layers)), faults
    return tuple(routing.nearest(layer.number) for layer in layers), faults


def _unlike(layers: Sequence[ExpertLayer], routing: Routing) -> list[Fault]:
    """Layers of other experts than the routing was recorded with."""
    path = ("moe", "routing")
    if routing.top_k is None:
        detail = (
            "the routing has loads in a unit that is no number of tokens: it can be balanced, and "
            "says of no token where it goes; name one with top_k"
        )
        return [Fault(FaultCode.INCONSISTENT, path, detail)]
    faults = []
    for what, own, theirs in (
        ("experts", routing.experts, {layer.experts for layer in layers}),
        ("experts of each token", routing.top_k, {layer.top_k for layer in layers}),
    ):
        if theirs != {own}:
            has = " and ".join(str(one) for one in sorted(theirs))
            detail = f"the routing has {own} {what}, the layers of the plan {has}"
            faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    return faults
