"""Wire types of links that transfers and expert exchanges share, and what that costs."""

from fractions import Fraction
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.amounts import Amount
from service.core.estimates.shared_links import (
    Interference,
    LinkUser,
    LinkWaits,
    SharedLink,
    SharedLinks,
)
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.moe.results import Pass
from service.core.units import PICOSECONDS_PER_SECOND, to_seconds

__all__ = [
    "MAX_SHARED_LINKS",
    "InterferenceOut",
    "LinkUserOut",
    "LinkWaitsOut",
    "SharedExchangeLink",
    "SharedLinksOut",
    "shared_links_out",
]

# Those that are occupied longest are listed.
MAX_SHARED_LINKS = 256

_Seconds = Annotated[float, Meta(ge=0)]


class LinkUserOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What uses the link for a microbatch: what a stage hands on, or what its experts exchange."""

    use: Annotated[
        str,
        Meta(description="transfer, or the exchange: dispatch or combine.", examples=["dispatch"]),
    ]
    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[
        int, Meta(ge=0, description="That gets a transfer; of an exchange the same stage.")
    ]
    backward: Annotated[bool, Meta(description="Whether it carries gradients.")]
    operation: Annotated[
        Pass | UnsetType, Meta(description="Of an exchange: the operation that makes it.")
    ] = UNSET
    pipeline_direction: Annotated[
        int | UnsetType, Meta(description="Of its microbatches, in a two-way schedule.")
    ] = UNSET
    uses_per_microbatch: Annotated[
        int, Meta(ge=1, description="Messages of rank pairs, or exchanges of layers, over it.")
    ]
    bytes_per_microbatch: Annotated[
        float, Meta(ge=0, description="All of these; the mean where microbatches differ.")
    ]
    occupied_seconds: Annotated[
        _Seconds, Meta(description="Of one microbatch, at the rate of predictions; the mean.")
    ]


class LinkWaitsOut(msgspec.Struct, kw_only=True, frozen=True):
    """What waits for the link in an iteration, and what for. Waits at one time each count."""

    transfers_behind_transfers_seconds: _Seconds
    exchanges_behind_transfers_seconds: _Seconds
    exchanges_behind_exchanges_seconds: _Seconds


class SharedExchangeLink(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A capacity with several users."""

    link: Annotated[str, Meta(description="source->target, or the name of what links share.")]
    kind: str
    bandwidth_bytes_per_second: Annotated[float, Meta(gt=0, description="Nominal.")]
    transfers_and_exchanges: Annotated[bool, Meta(description="Whether both use it.")]
    bytes_per_microbatch: Annotated[float, Meta(ge=0, description="All users together.")]
    occupied_seconds: Annotated[_Seconds, Meta(description="For a microbatch of all users.")]
    users: list[LinkUserOut]
    waits: Annotated[
        LinkWaitsOut | UnsetType, Meta(description="In `link` mode, where transfers queue.")
    ] = UNSET


class InterferenceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The simulated iteration, and with less on the links; absent parts are not known.

    What is off the links takes what it takes alone. Queues are first in, first out, so that less on
    a link may take longer: differences may be negative.
    """

    together_seconds: float | UnsetType = UNSET
    transfers_only_seconds: Annotated[
        float | UnsetType, Meta(description="Exchanges occupy nothing.")
    ] = UNSET
    exchanges_only_seconds: Annotated[
        float | UnsetType, Meta(description="Transfers occupy nothing.")
    ] = UNSET
    apart_seconds: Annotated[
        float | UnsetType, Meta(description="Neither does: nothing waits for a link.")
    ] = UNSET
    among_transfers_seconds: Annotated[
        float | UnsetType, Meta(description="That transfers wait for each other adds.")
    ] = UNSET
    among_exchanges_seconds: Annotated[
        float | UnsetType, Meta(description="That exchanges of stages wait for each other adds.")
    ] = UNSET
    between_seconds: Annotated[
        float | UnsetType,
        Meta(description="That transfers and exchanges wait for each other adds beyond these."),
    ] = UNSET


class SharedLinksOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Who shares links, and what it adds to an iteration."""

    shared: Annotated[int, Meta(ge=0, description="How many links are, listed or not.")]
    links: Annotated[
        list[SharedExchangeLink],
        Meta(description=f"The {MAX_SHARED_LINKS} that are occupied longest."),
    ]
    interference: Annotated[
        InterferenceOut | UnsetType,
        Meta(description="In `link` mode, where experts exchange anything over links."),
    ] = UNSET


def shared_links_out(simulated: SimulatedPlan, found: SharedLinks) -> SharedLinksOut:
    """The wire form of the links that a plan shares."""
    listed = sorted(found.links, key=lambda link: -_mean(simulated, link.occupied, 0))
    return SharedLinksOut(
        shared=len(found.links),
        links=[_link(simulated, link) for link in listed[:MAX_SHARED_LINKS]],
        interference=UNSET if found.interference is None else _interference(found.interference),
    )


def _link(simulated: SimulatedPlan, shared: SharedLink) -> SharedExchangeLink:
    return SharedExchangeLink(
        link=shared.link.resource,
        kind=shared.link.kind.value,
        bandwidth_bytes_per_second=shared.link.bandwidth_bytes_per_second,
        transfers_and_exchanges=shared.mixed,
        bytes_per_microbatch=sum(
            _mean(simulated, one.bytes, one.direction) for one in shared.users
        ),
        occupied_seconds=sum(
            _mean(simulated, one.occupied, one.direction) / PICOSECONDS_PER_SECOND
            for one in shared.users
        ),
        users=[_user(simulated, one) for one in shared.users],
        waits=UNSET if shared.waits is None else _waits(shared.waits),
    )


def _user(simulated: SimulatedPlan, user: LinkUser) -> LinkUserOut:
    two_way = simulated.timeline.program.directions > 1
    return LinkUserOut(
        use="transfer" if user.part is None else user.part.value,
        source_stage=user.source,
        target_stage=user.target,
        backward=user.backward,
        operation=UNSET if user.way is None else user.way,
        pipeline_direction=user.direction if two_way else UNSET,
        uses_per_microbatch=user.times,
        bytes_per_microbatch=_mean(simulated, user.bytes, user.direction),
        occupied_seconds=_mean(simulated, user.occupied, user.direction) / PICOSECONDS_PER_SECOND,
    )


def _mean(simulated: SimulatedPlan, amount: Amount, direction: int) -> float:
    directions = simulated.timeline.program.directions
    return float(simulated.resolved.sizes.spread(amount, direction, directions).mean)


def _waits(waits: LinkWaits) -> LinkWaitsOut:
    return LinkWaitsOut(
        transfers_behind_transfers_seconds=to_seconds(waits.transfers_behind_transfers),
        exchanges_behind_transfers_seconds=to_seconds(waits.exchanges_behind_transfers),
        exchanges_behind_exchanges_seconds=to_seconds(waits.exchanges_behind_exchanges),
    )


def _interference(found: Interference) -> InterferenceOut:
    return InterferenceOut(
        together_seconds=_seconds(found.together),
        transfers_only_seconds=_seconds(found.transfers_only),
        exchanges_only_seconds=_seconds(found.exchanges_only),
        apart_seconds=_seconds(found.apart),
        among_transfers_seconds=_seconds(found.among_transfers),
        among_exchanges_seconds=_seconds(found.among_exchanges),
        between_seconds=_seconds(found.between),
    )


def _seconds(picoseconds: Fraction | None) -> float | UnsetType:
    return UNSET if picoseconds is None else float(picoseconds / PICOSECONDS_PER_SECOND)
