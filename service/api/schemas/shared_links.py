"""Wire types of the links that the boundaries of a plan share."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.estimates.bounds import boundary_transfers as pinned_transfers
from service.core.estimates.simulation import SimulatedPlan
from service.core.topology.bounds import Transfer, link_loads

__all__ = ["SharedLink", "shared_link_terms"]

Unset = msgspec.UnsetType


class SharedLink(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A directed link that several rank pairs use; in `link` mode they wait for each other."""

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


def shared_link_terms(simulated: SimulatedPlan) -> list[SharedLink]:
    """Directed links that more than one sender and receiver use, for one microbatch of each."""
    pinned = pinned_transfers(simulated)
    program, sizes = simulated.timeline.program, simulated.resolved.sizes
    alike = all(isinstance(sent.message_bytes, int) for sent in pinned)
    # One microbatch in each direction at a time.
    of_iteration = 1 if alike else program.microbatches // program.directions
    loads = link_loads(
        [
            Transfer(
                sent.path,
                sent.message_bytes
                if alike and isinstance(sent.message_bytes, int)
                else sizes.spread(sent.message_bytes, sent.direction, program.directions).total,
            )
            for sent in pinned
        ]
    )
    return [
        SharedLink(
            link=load.name,
            kind=load.link.kind.value,
            bandwidth_bytes_per_second=load.link.bandwidth_bytes_per_second,
            pairs=[pinned[number].ranks for number in load.transfers],
            bytes_per_microbatch=load.total_bytes if alike else msgspec.UNSET,
            bytes_per_iteration=msgspec.UNSET if alike else load.total_bytes,
            lower_bound_seconds=load.lower_bound_seconds / of_iteration,
        )
        for load in loads.shared
    ]
