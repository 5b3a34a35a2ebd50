"""Wire types of bounds and predictions of many transfers."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.answers import Pin, StatementOut
from service.api.schemas.flow_requests import FlowsRequest
from service.api.schemas.flow_statements import flow_assumptions, flow_gaps
from service.app.ports import Revision
from service.core.topology.expand import Expansion
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.prediction import PredictionMethod
from service.core.topology.flows.questions import FlowFindings
from service.core.topology.flows.results import (
    BindingKind,
    Direction,
    FlowBound,
    Method,
)
from service.core.topology.flows.use import UseBasis, Uses, uses_of
from service.core.topology.flows.witness import rounded_down
from service.formats.documents.fields import or_unset

__all__ = [
    "BindingOut",
    "FlowBoundOut",
    "FlowEnd",
    "FlowLowerBounds",
    "FlowsAnswer",
    "LinkUseOut",
    "LinkUses",
    "PredictionOut",
    "UnreachablePair",
    "WitnessLink",
    "flows_answer",
]

# Capacities of one witness that are listed; there may be thousands alike.
MAX_WITNESS = 512
MAX_UNREACHABLE = 1_000

_Seconds = Annotated[float, Meta(ge=0)]


class WitnessLink(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A capacity of a witness."""

    link: Annotated[
        str,
        Meta(description="source->target; the name of what is shared where links share one."),
    ]
    bandwidth_bytes_per_second: Annotated[float, Meta(gt=0, description="Nominal.")]
    length: Annotated[int, Meta(ge=1, description="What a byte takes up of it; 1 in a cut.")]
    alike: Annotated[
        int, Meta(ge=1, description="How many like it are in the witness, this one included.")
    ] = 1


class BindingOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What binds."""

    kind: Annotated[
        BindingKind,
        Meta(
            description="link: one that can't be avoided, or the most loaded; partition: between "
            "all sets of a family, which `name` says; lengths: several links, each with a weight; "
            "the others are a set of vertices."
        ),
    ]
    name: Annotated[
        str,
        Meta(description="The link, device, host or switch; of another set its first vertex."),
    ]
    direction: Annotated[
        Direction | UnsetType,
        Meta(description="What leaves the set, what enters it, or both over shared capacities."),
    ] = UNSET


class FlowBoundOut(msgspec.Struct, kw_only=True, frozen=True):
    """A lower bound: `demanded_bytes` over `offered_bytes_per_second`, rounded down."""

    seconds: Annotated[_Seconds, Meta(description="No schedule takes less, latency aside.")]
    binding: BindingOut
    demanded_bytes: Annotated[
        float,
        Meta(description="That must cross the witness; times the least length of their routes."),
    ]
    offered_bytes_per_second: Annotated[
        float, Meta(description="Nominal rates of the witness, each times its length.")
    ]
    witness: Annotated[list[WitnessLink], Meta(description="Its links, one of each kind alike.")]
    witness_links: Annotated[int, Meta(ge=1, description="How many there are, listed or not.")]


class FlowLowerBounds(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """By kind, each at least as high as the one before; absent when nothing moves or not known."""

    port: Annotated[
        FlowBoundOut | UnsetType, Meta(description="What one device sends or gets.")
    ] = UNSET
    link: Annotated[
        FlowBoundOut | UnsetType,
        Meta(description="What can't avoid one link; no less than the port's when pinned."),
    ] = UNSET
    cut: Annotated[
        FlowBoundOut | UnsetType,
        Meta(description="What leaves or enters a set of vertices, of many sets."),
    ] = UNSET
    concurrent_flow: Annotated[
        FlowBoundOut | UnsetType, Meta(description="The best bound that there is for any routing.")
    ] = UNSET


class LinkUseOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a capacity carries."""

    link: Annotated[str, Meta(description="source->target, or the name of what links share.")]
    alike: Annotated[int, Meta(ge=1, description="How many carry as much, this one included.")] = 1
    load_bytes: Annotated[float, Meta(ge=0)]
    bandwidth_bytes_per_second: Annotated[float, Meta(gt=0, description="Nominal.")]
    busy_seconds: Annotated[_Seconds, Meta(description="The load at the nominal rate.")]
    utilisation_fraction: Annotated[float, Meta(ge=0, le=1, description="Of `seconds`.")]


class LinkUses(msgspec.Struct, kw_only=True, frozen=True):
    """What every used link carries."""

    basis: Annotated[
        UseBasis,
        Meta(
            description="pinned_paths; optimal_routing: one among many that reach the concurrent "
            "flow; ring, reduction_trees: the predicted algorithm, which is not what the bounds "
            "are of."
        ),
    ]
    seconds: Annotated[
        _Seconds, Meta(description="The time that utilisation is of: the bound's or prediction's.")
    ]
    used_links: Annotated[int, Meta(ge=0, description="How many there are, listed or not.")]
    links: list[LinkUseOut]


class FlowEnd(msgspec.Struct, kw_only=True, frozen=True):
    """When one message is expected to be complete."""

    source: str
    target: str
    predicted_seconds: _Seconds


class PredictionOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What is expected on pinned paths; no bound."""

    seconds: Annotated[_Seconds, Meta(description="Typical latencies and effective rates.")]
    method: Annotated[
        PredictionMethod,
        Meta(
            description="all_at_once: rates are max-min fair; ring: over the devices in order, one "
            "ring, or one for each NIC of a host (see `assumptions`), all steps at once; "
            "reduction_trees: a share of the message for each device, added up and copied by "
            "switches."
        ),
    ]
    flows: Annotated[
        list[FlowEnd] | UnsetType, Meta(description="Each message of `flows` that moves anything.")
    ] = UNSET


class UnreachablePair(msgspec.Struct, kw_only=True, frozen=True):
    """A pair that no allowed route joins."""

    source: str
    target: str


class FlowsAnswer(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Bounds and a prediction of many transfers."""

    pins: Annotated[list[Pin], Meta(description="The topology at the revision that was used.")]
    routing: FlowRouting
    devices: Annotated[int, Meta(ge=0, description="How many send or receive.")]
    lower_bound_seconds: (
        Annotated[
            _Seconds,
            Meta(
                description="The highest of the bounds and of the latency floor. Absent where "
                "nothing that is asked for can be completed, since no route joins its ends."
            ),
        ]
        | UnsetType
    ) = UNSET
    lower_bounds: FlowLowerBounds
    latency_floor_seconds: Annotated[
        _Seconds,
        Meta(description="Guaranteed latency of the pair that has most, on its quickest route."),
    ]
    method: Annotated[
        Method,
        Meta(
            description="How the concurrent flow was found. cuts: not at all, because the program "
            "would be too large; symmetric_linear_program: exactly, with one of each kind of hosts "
            "and switches."
        ),
    ]
    prediction: PredictionOut | UnsetType = UNSET
    link_uses: LinkUses | UnsetType = UNSET
    unreachable: Annotated[
        list[UnreachablePair],
        Meta(
            description="Of a collective that can't be completed some pairs, and there is no "
            "bound; of single messages all that can't arrive, and the others are bounded."
        ),
    ]
    assumptions: list[StatementOut]
    not_represented: list[StatementOut]


def flows_answer(
    revision: Revision, expansion: Expansion, data: FlowsRequest, found: FlowFindings
) -> FlowsAnswer:
    """What was found as it goes over the wire. Pure, and too much for the event loop at times."""
    bounds, names = found.bounds, found.study.network.names
    uses = uses_of(found, data.routing)
    return FlowsAnswer(
        pins=[Pin(kind=revision.kind.value, reference=revision.reference, digest=revision.digest)],
        routing=data.routing,
        devices=len(found.demand.vertices),
        lower_bound_seconds=(UNSET if bounds.unreachable and not bounds.bounds else bounds.seconds),
        lower_bounds=FlowLowerBounds(
            **{bound.kind.value: _bound(found, bound) for bound in bounds.bounds}
        ),
        latency_floor_seconds=rounded_down(bounds.latency_floor),
        method=bounds.method,
        prediction=_prediction(found, data),
        link_uses=UNSET if uses is None else _uses(found, uses, data.max_links),
        unreachable=[
            UnreachablePair(source=names[one], target=names[other])
            for one, other in bounds.unreachable[:MAX_UNREACHABLE]
        ],
        assumptions=list(flow_assumptions(expansion, data.routing, found)),
        not_represented=list(flow_gaps(found, uses)),
    )


def _bound(found: FlowFindings, bound: FlowBound) -> FlowBoundOut:
    network = found.study.network
    return FlowBoundOut(
        seconds=bound.seconds,
        binding=BindingOut(
            kind=bound.binding.kind,
            name=bound.binding.name,
            direction=or_unset(bound.binding.direction),
        ),
        demanded_bytes=float(bound.demanded),
        offered_bytes_per_second=float(bound.offered),
        witness=[
            WitnessLink(
                link=network.resource_name(part.resource),
                bandwidth_bytes_per_second=float(network.capacity[part.resource]),
                length=part.length,
                alike=part.copies,
            )
            for part in bound.parts[:MAX_WITNESS]
        ],
        witness_links=sum(part.copies for part in bound.parts),
    )


def _prediction(found: FlowFindings, data: FlowsRequest) -> PredictionOut | UnsetType:
    predicted = found.prediction
    if predicted is None:
        return UNSET
    names, messages = found.study.network.names, predicted.messages
    flows: list[FlowEnd] | UnsetType = UNSET
    if not isinstance(data.flows, UnsetType):
        rows = zip(
            messages.sources.tolist(),
            messages.targets.tolist(),
            predicted.ends.tolist(),
            strict=True,
        )
        flows = [
            FlowEnd(source=names[source], target=names[target], predicted_seconds=end)
            for source, target, end in rows
        ]
    return PredictionOut(seconds=predicted.seconds, method=predicted.method, flows=flows)


def _uses(found: FlowFindings, uses: Uses, limit: int) -> LinkUses:
    network = found.study.network
    return LinkUses(
        basis=uses.basis,
        seconds=uses.seconds,
        used_links=sum(use.load.copies for use in uses.links),
        links=[
            LinkUseOut(
                link=network.resource_name(use.load.resource),
                alike=use.load.copies,
                load_bytes=use.load.bytes,
                bandwidth_bytes_per_second=float(network.capacity[use.load.resource]),
                busy_seconds=use.busy_seconds,
                utilisation_fraction=use.utilisation,
            )
            for use in uses.links[:limit]
        ],
    )
