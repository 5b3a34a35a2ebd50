"""From a routing to what the expert groups of a stage send and compute, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import InvalidInput, Statement
from service.core.moe.assignments import Assignments
from service.core.moe.capacity import admit
from service.core.moe.copies import dispatch
from service.core.moe.overflow import OverflowPolicy
from service.core.moe.routing import assignments
from service.core.moe.served import Admitted, Served
from service.core.moe.serving import serve
from service.core.moe.traffic import Traffic
from service.core.plans.moe.inputs import ExpertGroups, ExpertLayer, MoeInputs

__all__ = ["GroupFlow", "StageFlow", "stage_flow"]

Int64Array = npt.NDArray[np.int64]

_PADDED = frozenset({OverflowPolicy.PAD, OverflowPolicy.DROPLESS_PADDED})


@dataclass(frozen=True, slots=True, eq=False)
class GroupFlow:
    """One expert group in one layer and microbatch: what is asked, served and sent."""

    assignments: Assignments
    admitted: Admitted
    served: Served
    traffic: Traffic


@dataclass(frozen=True, slots=True, eq=False)
class StageFlow:
    """Those of all groups of a pipeline rank, in order; groups that are alike have the same one."""

    groups: tuple[GroupFlow, ...]
    notes: tuple[Statement, ...]


def stage_flow(inputs: MoeInputs, layer: ExpertLayer, size_class: int, home: int) -> StageFlow:
    """What all expert groups of a pipeline rank do in one layer of a microbatch of a class.

    A routing with more sources than a group has ranks is that of all groups together, each taking
    its own; one with fewer or as many is that of each group. Raises `InvalidInput` for placements
    that name experts the layer does not have, or leave some out, and for routings without tokens.
    """
    settings, groups = inputs.settings, inputs.groups[home]
    asked, notes = _asked(inputs, layer, size_class, groups)
    placement = inputs.placement(layer.experts)
    admitted: dict[int, Admitted] = {}
    found: dict[tuple[int, bytes, bytes], GroupFlow] = {}
    flows = []
    for number, one in enumerate(asked):
        nodes, places = _renumbered(groups.nodes[number]), groups.places[number]
        key = id(one), nodes.tobytes(), places.tobytes()
        if key not in found:
            if id(one) not in admitted:
                admitted[id(one)] = admit(one, settings.capacity)
            served = serve(
                admitted[id(one)],
                one,
                placement,
                settings.replica_splitting,
                expert_tensor=inputs.expert_tensor,
                node_of_source=nodes,
            )
            traffic = dispatch(
                served,
                dispatcher=settings.dispatcher,
                deduplication=settings.deduplication,
                node_of_source=nodes,
                place_in_node=places,
                expert_tensor=inputs.expert_tensor,
                top_k=one.top_k,
                tokens=one.tokens,
                padded=settings.capacity.overflow in _PADDED,
            )
            found[key] = GroupFlow(one, admitted[id(one)], served, traffic)
        flows.append(found[key])
    return StageFlow(tuple(flows), notes)


def _asked(
    inputs: MoeInputs, layer: ExpertLayer, size_class: int, groups: ExpertGroups
) -> tuple[Sequence[Assignments], tuple[Statement, ...]]:
    """What each group asks for."""
    routing, step = inputs.of(layer), inputs.steps[size_class]
    number = layer.routing_layer if layer.routing_layer is not None else layer.number
    sources = 1
    if routing.skew is None:
        sources = routing.records[number, step % routing.steps].sources
    together = groups.count if sources > groups.width else 1
    tokens = np.full(groups.width * together, inputs.tokens[size_class], dtype=np.int64)
    try:
        routed = assignments(routing, number, step, tokens, ranks=inputs.expert)
    except InvalidInput as invalid:
        raise InvalidInput(fault.under("routing") for fault in invalid.faults) from invalid
    if together == 1:
        return (routed.assignments,) * groups.count, routed.notes
    return _divided(routed.assignments, groups.width), routed.notes


def _divided(whole: Assignments, width: int) -> list[Assignments]:
    """By groups of so many sources, in order."""
    offsets = whole.offsets
    return [
        Assignments(
            whole.counts[first : first + width],
            whole.tokens[first : first + width],
            whole.top_k,
            whole.level,
            None
            if whole.choices is None
            else whole.choices[offsets[first] : offsets[first + width]],
        )
        for first in range(0, whole.sources, width)
    ]


def _renumbered(nodes: Int64Array) -> Int64Array:
    """The same hosts by their order of appearance, so that groups on like hosts are alike."""
    number: dict[int, int] = {}
    return np.array([number.setdefault(node, len(number)) for node in nodes.tolist()], np.int64)
