"""Wire types of the links that the boundaries of a plan share."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.amounts import Amount
from service.core.estimates.bounds import boundary_transfers as pinned_transfers
from service.core.estimates.shared_links import LinkUser, exchange_users
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.moe.results import ExchangePart, Pass
from service.core.topology.bounds import LinkLoad, Transfer, link_loads

__all__ = ["LinkExchange", "SharedLink", "shared_link_terms"]

Unset = msgspec.UnsetType


class LinkExchange(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What the experts of a stage exchange over a link, all its expert groups together."""

    stage: Annotated[int, Meta(ge=0)]
    operation: Annotated[Pass, Meta(description="In which it is exchanged.")]
    part: Annotated[
        ExchangePart,
        Meta(description="Tokens on the way to their experts, or back; in a backward gradients."),
    ]
    exchanges_per_microbatch: Annotated[
        int, Meta(ge=1, description="Number of layers whose exchange uses the link.")
    ]
    bytes_per_microbatch: Annotated[
        Annotated[int, Meta(ge=0)] | Unset,
        Meta(description="Of all these; absent when microbatches differ."),
    ] = msgspec.UNSET
    bytes_per_iteration: Annotated[
        Annotated[int, Meta(ge=0)] | Unset,
        Meta(description="Of all these; absent when microbatches are alike."),
    ] = msgspec.UNSET


class SharedLink(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A directed link that several rank pairs use, or exchanges of experts beside a rank pair or of
    several stages; in `link` mode they wait for each other.
    """

    link: str
    kind: str
    bandwidth_bytes_per_second: Annotated[float, Meta(gt=0)]
    pairs: Annotated[
        list[str], Meta(description="sender->receiver of each user, as ranks: 3->4 or back, 4->3.")
    ]
    bytes_per_microbatch: Annotated[
        int | Unset, Meta(description="All users together; absent when microbatches differ.")
    ] = msgspec.UNSET
    bytes_per_iteration: Annotated[
        int | Unset, Meta(description="All users together; absent when microbatches are alike.")
    ] = msgspec.UNSET
    lower_bound_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Least time this link needs for one microbatch of all users; the mean when "
            "microbatches differ.",
        ),
    ]
    exchanges: Annotated[
        list[LinkExchange] | Unset,
        Meta(description="Of experts over this link; absent where there are none."),
    ] = msgspec.UNSET


def shared_link_terms(simulated: SimulatedPlan) -> list[SharedLink]:
    """Directed links that more than one sender and receiver use, for one microbatch of each."""
    pinned = pinned_transfers(simulated)
    program, sizes = simulated.timeline.program, simulated.resolved.sizes
    exchanged = list(exchange_users(simulated))
    amounts = [sent.message_bytes for sent in pinned] + [user.bytes for _, user in exchanged]
    alike = all(isinstance(amount, int) for amount in amounts)
    # One microbatch in each direction at a time.
    of_iteration = 1 if alike else program.microbatches // program.directions

    def size(amount: Amount, direction: int) -> int:
        if alike and isinstance(amount, int):
            return amount
        return sizes.spread(amount, direction, program.directions).total

    loads = link_loads(
        [Transfer(sent.path, size(sent.message_bytes, sent.direction)) for sent in pinned]
    ).plus([(link, size(user.bytes, user.direction)) for link, user in exchanged])
    users: dict[str, list[LinkUser]] = {}
    for link, user in exchanged:
        users.setdefault(link.resource, []).append(user)

    def exchange(user: LinkUser) -> LinkExchange:
        carried = size(user.bytes, user.direction)
        return LinkExchange(
            stage=user.source,
            operation=user.way or Pass.FORWARD,
            part=user.part or ExchangePart.DISPATCH,
            exchanges_per_microbatch=user.times,
            bytes_per_microbatch=carried if alike else msgspec.UNSET,
            bytes_per_iteration=msgspec.UNSET if alike else carried,
        )

    def is_shared(load: LinkLoad) -> bool:
        stages = {user.source for user in users.get(load.name, ())}
        return len(load.transfers) + len(stages) > 1

    return [
        SharedLink(
            link=load.name,
            kind=load.link.kind.value,
            bandwidth_bytes_per_second=load.link.bandwidth_bytes_per_second,
            pairs=[pinned[number].ranks for number in load.transfers],
            bytes_per_microbatch=load.total_bytes if alike else msgspec.UNSET,
            bytes_per_iteration=msgspec.UNSET if alike else load.total_bytes,
            lower_bound_seconds=load.lower_bound_seconds / of_iteration,
            exchanges=[exchange(user) for user in users[load.name]]
            if load.name in users
            else msgspec.UNSET,
        )
        for load in loads.loads
        if is_shared(load)
    ]
