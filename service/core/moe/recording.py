"""From what was recorded of a routing to the routing itself, with every fault of the record."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.errors import Fault, FaultCode, InvalidInput, some_of
from service.core.moe.assignments import RoutingLevel
from service.core.moe.recorded import (
    Measure,
    ReadLayer,
    Recorded,
    form_of,
    level_of,
    read_layer,
    warm_up_warning,
)
from service.core.moe.routing import Routing, RoutingRecord
from service.core.moe.skews import Skew, check_skew

__all__ = ["MAX_ROUTING_FAULTS", "BuiltRouting", "build_routing", "routing_of_skew"]

# Of one routing that are told; the rest follow from them as a rule.
MAX_ROUTING_FAULTS = 100
# Counts by source and expert of all layers and steps that a routing keeps, 8 bytes each.
MAX_ENTRIES = 2**24


@dataclass(frozen=True, slots=True)
class BuiltRouting:
    """A routing, and what a person should know of how it was recorded."""

    routing: Routing
    warnings: tuple[str, ...] = ()


def routing_of_skew(skew: Skew, experts: int, top_k: int | None) -> Routing:
    """The routing that is a named skew.

    Raises InvalidInput with every fault.
    """
    faults = _check_top_k(experts, top_k)
    if top_k is None:
        detail = "a skew says how tokens choose: state how many experts each has"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("top_k",), detail))
    faults += check_skew(skew, experts=experts, top_k=top_k, path=("skew",))
    if faults:
        raise InvalidInput(faults)
    steps = tuple(range(skew.steps))
    return Routing(experts, top_k, RoutingLevel.SKEW, step_numbers=steps, skew=skew)


def build_routing(measure: Measure, layers: Sequence[Recorded]) -> BuiltRouting:
    """The routing of recorded layers, each in one step.

    Raises InvalidInput with every fault, up to `MAX_ROUTING_FAULTS`, each pointing to where it is:
    a layer's at `("layers", place, field, ...)`.
    """
    faults = _check_top_k(measure.experts, measure.top_k)
    if measure.top_k is None and measure.tokens is not None:
        detail = "without top_k counts are loads, of no number of tokens: state top_k"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("tokens",), detail))
    faults += _check_places(layers)
    sources = sum(len(layer.tokens_by_source or (0,)) for layer in layers if layer.topk_ids)
    if sources * measure.experts > MAX_ENTRIES:
        detail = (
            f"{sources} sources of all layers x {measure.experts} experts make"
            f" {sources * measure.experts} counts; at most {MAX_ENTRIES} are kept"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("layers",), detail)])
    read: list[ReadLayer] = []
    for place, layer in enumerate(layers):
        if len(faults) > MAX_ROUTING_FAULTS:
            break
        read.append(read_layer(layer, measure))
        faults += [fault.under("layers", place) for fault in read[-1].faults]
    records = [each.record for each in read if each.record is not None]
    if len(records) == len(layers):
        faults += _check_sources(records)
    if len(faults) > MAX_ROUTING_FAULTS:
        detail = f"more faults follow; reading ended after {MAX_ROUTING_FAULTS}"
        faults[MAX_ROUTING_FAULTS:] = [Fault(FaultCode.INCONSISTENT, (), detail)]
    if faults:
        raise InvalidInput(faults)
    numbers = tuple(sorted({layer.step for layer in layers}))
    index = {number: step for step, number in enumerate(numbers)}
    routing = Routing(
        experts=measure.experts,
        top_k=measure.top_k,
        level=level_of(form_of(layers[0]) or ""),
        layers=tuple(sorted({layer.layer for layer in layers})),
        step_numbers=numbers,
        records={
            (layer.layer, index[layer.step]): record
            for layer, record in zip(layers, records, strict=True)
        },
    )
    warned = (warm_up_warning(place, each) for place, each in enumerate(read))
    return BuiltRouting(routing, tuple(each for each in warned if each is not None))


def _check_top_k(experts: int, top_k: int | None) -> list[Fault]:
    if top_k is None or top_k <= experts:
        return []
    detail = f"a token asks for different experts, of which there are {experts}"
    return [Fault(FaultCode.OUT_OF_RANGE, ("top_k",), detail)]


def _check_places(layers: Sequence[Recorded]) -> list[Fault]:
    """That all layers are given alike, each once in each step."""
    faults: list[Fault] = []
    first: dict[tuple[int, int], int] = {}
    steps: dict[int, set[int]] = {}
    forms = [form_of(layer) for layer in layers]
    expected = next((form for form in forms if form is not None), None)
    for place, (layer, form) in enumerate(zip(layers, forms, strict=True)):
        seen = first.setdefault((layer.layer, layer.step), place)
        if seen != place:
            detail = f"layers/{seen} is layer {layer.layer} in step {layer.step} already"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, ("layers", place), detail))
        steps.setdefault(layer.layer, set()).add(layer.step)
        if form is not None and form != expected:
            detail = f"the layers before have {expected}; give all layers in one way"
            faults.append(Fault(FaultCode.INCONSISTENT, ("layers", place, form), detail))
    every = set().union(*steps.values())
    for layer_number, own in steps.items():
        missing = sorted(every - own)
        if missing:
            place = first[layer_number, min(own)]
            detail = f"layer {layer_number} lacks what other layers have, step {some_of(missing)}"
            faults.append(Fault(FaultCode.INCONSISTENT, ("layers", place), detail))
    return faults


def _check_sources(records: Sequence[RoutingRecord]) -> list[Fault]:
    """That each record tells as many sources apart."""
    expected = records[0].sources
    return [
        Fault(
            FaultCode.INCONSISTENT,
            ("layers", place),
            f"has {record.sources} sources; layers/0 has {expected}, and all have as many",
        )
        for place, record in enumerate(records)
        if record.sources != expected
    ]
