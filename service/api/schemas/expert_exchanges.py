"""Wire types of the exchanges of a layer with experts: bytes, bounds and what is expected."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.flows import BindingOut
from service.core.estimates.experts.facts import ExchangeFacts
from service.core.moe.exchange_bounds import ExchangeLimit
from service.core.topology.flows.network import Network
from service.core.topology.flows.results import FlowBound, Method
from service.core.units import to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "ExpertBound",
    "ExpertBounds",
    "ExpertExchange",
    "ExpertExchangeBounds",
    "ExpertPrediction",
    "RankBytes",
    "expert_exchange",
]

_Bytes = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]


class ExpertBound(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """No schedule of this exchange takes less: bytes over nominal capacities, latency aside."""

    seconds: _Seconds
    binding: BindingOut
    demanded_bytes: Annotated[float, Meta(ge=0, description="That must cross what binds.")]
    offered_bytes_per_second: Annotated[float, Meta(gt=0, description="Nominal, of what binds.")]
    utilisation_fraction: Annotated[
        float,
        Meta(ge=0, le=1, description="Of the predicted time in which what binds must be busy."),
    ]


class ExpertBounds(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Bounds of one family of routes, by what may limit; absent where nothing of it is used."""

    gpu_port: ExpertBound | UnsetType = UNSET
    card: ExpertBound | UnsetType = UNSET
    nic: ExpertBound | UnsetType = UNSET
    host: ExpertBound | UnsetType = UNSET
    leaf: ExpertBound | UnsetType = UNSET
    rail: ExpertBound | UnsetType = UNSET
    cut: ExpertBound | UnsetType = UNSET
    concurrent_flow: ExpertBound | UnsetType = UNSET


class ExpertExchangeBounds(msgspec.Struct, kw_only=True, frozen=True):
    """Two families that are not to be mixed: a pinned bound may lie above one of any route."""

    pinned: Annotated[ExpertBounds, Meta(description="Each pair's bytes on their stated path.")]
    any_route: Annotated[
        ExpertBounds,
        Meta(description="Bytes may go every allowed way, over NVLink to another NIC too."),
    ]
    method: Annotated[
        Method,
        Meta(description="How the concurrent flow of any route was found; cuts: it was not."),
    ]


class ExpertPrediction(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What is expected: latencies and effective rates, all groups of the stage at once."""

    seconds: Annotated[_Seconds, Meta(description="Its stages one after the other.")]
    transfer_seconds: Annotated[list[_Seconds], Meta(description="On links, by stage.")]
    latency_seconds: Annotated[list[_Seconds], Meta(description="Before that, by stage.")]
    binding_links: Annotated[
        list[str], Meta(description="What is taken up longest in each stage that moves anything.")
    ]


class RankBytes(msgspec.Struct, kw_only=True, frozen=True):
    """What the ranks of the group send or receive over links."""

    total_bytes: _Bytes
    most_bytes: _Bytes
    most_rank: Annotated[int, Meta(ge=0, description="A rank of the plan; the first of equals.")]
    mean_bytes: Annotated[float, Meta(ge=0)]


class ExpertExchange(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One exchange of one microbatch, of the expert group that stands for all."""

    copy_bytes: Annotated[int, Meta(ge=0, description="One copy of a token, scales included.")]
    sent: RankBytes
    received: RankBytes
    wire_bytes: Annotated[_Bytes, Meta(description="Between ranks; expected if not counted.")]
    least_wire_bytes: Annotated[
        int | UnsetType,
        Meta(description="At least and at most, where copies are expected and not counted."),
    ] = UNSET
    most_wire_bytes: int | UnsetType = UNSET
    between_hosts_bytes: Annotated[
        int | UnsetType, Meta(description="Of the wire bytes; absent without a topology.")
    ] = UNSET
    logical_bytes: Annotated[
        _Bytes,
        Meta(
            description="With a copy for each expert of a token, its own rank's included: what "
            "printed bandwidths often count."
        ),
    ]
    lower_bounds: ExpertExchangeBounds | UnsetType = UNSET
    prediction: ExpertPrediction | UnsetType = UNSET
    sent_bytes_by_rank: Annotated[
        list[_Bytes] | UnsetType,
        Meta(description="In the order of the group's ranks; absent in long answers."),
    ] = UNSET
    received_bytes_by_rank: list[_Bytes] | UnsetType = UNSET


def expert_exchange(
    facts: ExchangeFacts, ranks: list[int], network: Network | None, *, by_rank: bool
) -> ExpertExchange:
    """The wire form of an exchange of a group with these ranks of the plan."""
    predicted = UNSET if facts.cost is None else to_seconds(facts.cost.picoseconds)
    return ExpertExchange(
        copy_bytes=facts.copy_bytes,
        sent=_rank_bytes(facts.sent.tolist(), ranks),
        received=_rank_bytes(facts.received.tolist(), ranks),
        wire_bytes=facts.total,
        least_wire_bytes=UNSET if facts.fewest is None else facts.fewest,
        most_wire_bytes=UNSET if facts.most is None else facts.most,
        between_hosts_bytes=or_unset(facts.between_hosts),
        logical_bytes=facts.logical,
        lower_bounds=UNSET
        if facts.bounds is None
        else ExpertExchangeBounds(
            pinned=_family(facts.bounds.pinned, predicted),
            any_route=_family(facts.bounds.any_route, predicted),
            method=facts.bounds.method,
        ),
        prediction=_prediction(facts, network),
        sent_bytes_by_rank=facts.sent.tolist() if by_rank else UNSET,
        received_bytes_by_rank=facts.received.tolist() if by_rank else UNSET,
    )


def _rank_bytes(moved: list[int], ranks: list[int]) -> RankBytes:
    busiest = max(range(len(moved)), key=moved.__getitem__)
    return RankBytes(
        total_bytes=sum(moved),
        most_bytes=moved[busiest],
        most_rank=ranks[busiest],
        mean_bytes=sum(moved) / len(moved),
    )


def _family(
    bounds: Mapping[ExchangeLimit, FlowBound], predicted: float | UnsetType
) -> ExpertBounds:
    return ExpertBounds(**{limit.value: _bound(one, predicted) for limit, one in bounds.items()})


def _bound(bound: FlowBound, predicted: float | UnsetType) -> ExpertBound:
    return ExpertBound(
        seconds=bound.seconds,
        binding=BindingOut(
            kind=bound.binding.kind,
            name=bound.binding.name,
            direction=or_unset(bound.binding.direction),
        ),
        demanded_bytes=float(bound.demanded),
        offered_bytes_per_second=float(bound.offered),
        utilisation_fraction=min(1.0, bound.seconds / predicted) if predicted else 0.0,
    )


def _prediction(facts: ExchangeFacts, network: Network | None) -> ExpertPrediction | UnsetType:
    cost = facts.cost
    if cost is None or network is None:
        return UNSET
    return ExpertPrediction(
        seconds=to_seconds(cost.picoseconds),
        transfer_seconds=[to_seconds(one) for one in cost.transfer_picoseconds],
        latency_seconds=[to_seconds(one) for one in cost.latency_picoseconds],
        binding_links=[network.resource_name(one) for one in cost.binding if one is not None],
    )
