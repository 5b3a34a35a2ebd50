"""Wire types of the boundary transfers: what crosses each cut, on which path, and how long."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.api.schemas.crossing_tensors import TensorOut, tensor_terms
from service.api.schemas.physical_paths import PathOut, path_fields
from service.api.schemas.ranges import (
    BytesRanges,
    SecondsRanges,
    bytes_ranges,
    mean_seconds,
    same_bytes,
    seconds_ranges,
)
from service.api.schemas.shared_links import SharedLink, shared_link_terms
from service.api.schemas.tied_copies import TiedCopiesOut, tied_copies_terms
from service.core.amounts import Amount, Spread, combine
from service.core.estimates.simulation import SimulatedPlan
from service.core.estimates.transfers import TransferExposure
from service.core.plans.plan import Boundary, RankPair
from service.core.schedules.program import StageEdge
from service.core.topology.paths import PhysicalPath
from service.core.units import to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "BoundaryDirection",
    "BoundaryOut",
    "BoundaryTransfers",
    "BoundaryTransfersAnswer",
    "PairDirection",
    "PairOut",
    "boundary_transfers_terms",
]

Unset = msgspec.UnsetType
SpreadOf = Callable[[Amount | None], Spread | None]


class PairDirection(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One direction between two ranks, for one microbatch."""

    path: Annotated[PathOut | Unset, Meta(description="Absent without a topology.")] = msgspec.UNSET
    lower_bound_seconds: Annotated[
        float | Unset, Meta(description="Absent when the bytes or the path are not known.")
    ] = msgspec.UNSET
    transfer_seconds: Annotated[
        float | Unset, Meta(description="Predicted; absent when it is counted as zero unknown.")
    ] = msgspec.UNSET
    seconds_ranges: SecondsRanges = msgspec.UNSET


class PairOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Two ranks that exchange the payload of a boundary."""

    source_rank: Annotated[int, Meta(ge=0)]
    target_rank: Annotated[int, Meta(ge=0)]
    source_device: str | Unset = msgspec.UNSET
    target_device: str | Unset = msgspec.UNSET
    forward: PairDirection
    backward: PairDirection | Unset = msgspec.UNSET


class BoundaryDirection(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One direction of a boundary over the iteration; times of its slowest rank pair."""

    bytes: Annotated[
        int | Unset,
        Meta(
            description="One rank pair, one microbatch; absent when not known, and when "
            "microbatches differ: see bytes_ranges."
        ),
    ] = msgspec.UNSET
    lower_bound_seconds: Annotated[
        float | Unset,
        Meta(description="Of one microbatch; nominal capacity, latency floors, nothing else."),
    ] = msgspec.UNSET
    transfer_seconds: Annotated[float, Meta(ge=0, description="Predicted, of one microbatch.")]
    messages_per_iteration: Annotated[int, Meta(ge=0, description="Per rank pair.")]
    messages_per_second: Annotated[float, Meta(ge=0, description="Mean over the iteration.")]
    exposed_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Delay of consumers over the iteration that the transfers alone cause.",
        ),
    ]
    hidden_seconds: Annotated[float, Meta(ge=0, description="Transfer time that delayed nobody.")]
    queued_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Of exposed and hidden together, what passed behind others on links; 0 but "
            "in `link` mode.",
        ),
    ]
    seconds_ranges: SecondsRanges = msgspec.UNSET
    bytes_ranges: BytesRanges = msgspec.UNSET


class BoundaryOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one stage hands to a later one, and what comes back."""

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    pipeline_direction: Annotated[
        int | Unset,
        Meta(
            description="In a two-way schedule: 0 for microbatches that enter at the first rank, 1 "
            "for those that enter at the last. Absent in others."
        ),
    ] = msgspec.UNSET
    origin: Annotated[
        str,
        Meta(
            description="Source of the transfer time: given, path (bytes on it), assumed_zero, or "
            "local where both stages live on one rank and nothing is sent."
        ),
    ]
    tensors: Annotated[
        list[TensorOut] | Unset, Meta(description="Absent when the plan gives costs itself.")
    ] = msgspec.UNSET
    forward: BoundaryDirection
    backward: Annotated[
        BoundaryDirection | Unset, Meta(description="Absent when the schedule has no backward.")
    ] = msgspec.UNSET
    pairs: list[PairOut]


class BoundaryTransfers(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Every boundary, the links that boundaries share, and copies of tied weights."""

    boundaries: list[BoundaryOut]
    shared_links: list[SharedLink]
    tied_copies: Annotated[
        list[TiedCopiesOut] | Unset,
        Meta(description="Weights that stand on several stages; absent where there are none."),
    ] = msgspec.UNSET


BoundaryTransfersAnswer = answer_type("BoundaryTransfersAnswer", BoundaryTransfers)


def boundary_transfers_terms(
    simulated: SimulatedPlan, exposures: Sequence[TransferExposure]
) -> BoundaryTransfers:
    """The wire form of what crosses between the stages of a plan."""
    by_edge = {(exposure.edge, exposure.forward): exposure for exposure in exposures}
    return BoundaryTransfers(
        boundaries=[
            _boundary(boundary, by_edge, simulated) for boundary in simulated.resolved.boundaries
        ],
        shared_links=shared_link_terms(simulated),
        tied_copies=tied_copies_terms(simulated.resolved),
    )


def _boundary(
    boundary: Boundary,
    exposures: dict[tuple[StageEdge, bool], TransferExposure],
    simulated: SimulatedPlan,
) -> BoundaryOut:
    directions = simulated.timeline.program.directions
    makespan = to_seconds(simulated.timeline.makespan)
    edge = boundary.edge

    def spread(amount: Amount | None) -> Spread | None:
        if amount is None:
            return None
        return simulated.resolved.sizes.spread(amount, boundary.direction, directions)

    def direction(
        size: Amount | None, bounds: list[Amount | None], predicted: Amount, *, forward: bool
    ) -> BoundaryDirection:
        exposure = exposures.get((edge, forward), TransferExposure(edge, forward, 0, 0, 0))
        known = [bound for bound in bounds if bound is not None]
        least = combine(lambda *of_pairs: max(of_pairs), *known) if known else None
        return _direction(size, least, predicted, exposure, makespan, spread)

    return BoundaryOut(
        source_stage=boundary.source,
        target_stage=boundary.target,
        pipeline_direction=boundary.direction if directions > 1 else msgspec.UNSET,
        origin=boundary.origin.value,
        tensors=msgspec.UNSET
        if boundary.tensors is None
        else [tensor_terms(tensor, spread) for tensor in boundary.tensors],
        forward=direction(
            boundary.forward_bytes,
            [pair.forward_bound_picoseconds for pair in boundary.pairs],
            boundary.forward_picoseconds,
            forward=True,
        ),
        backward=direction(
            boundary.backward_bytes,
            [pair.backward_bound_picoseconds for pair in boundary.pairs],
            boundary.backward_picoseconds,
            forward=False,
        )
        if simulated.has_backward
        else msgspec.UNSET,
        pairs=[_pair(pair, spread, backward=simulated.has_backward) for pair in boundary.pairs],
    )


def _direction(
    size: Amount | None,
    bound: Amount | None,
    predicted: Amount,
    exposure: TransferExposure,
    makespan: float,
    spread: SpreadOf,
) -> BoundaryDirection:
    messages = exposure.messages
    if size is not None:
        # What has nothing to send waits all the same, but sends no message.
        silent = spread(combine(lambda sent, time: int(sent == time == 0), size, predicted))
        messages = 0 if silent is None else max(0, messages - silent.total)
    times = {"lower_bound_seconds": spread(bound), "transfer_seconds": spread(predicted)}
    return BoundaryDirection(
        bytes=same_bytes(spread(size)),
        lower_bound_seconds=mean_seconds(times["lower_bound_seconds"]),
        transfer_seconds=mean_seconds(times["transfer_seconds"]) or 0.0,
        messages_per_iteration=messages,
        messages_per_second=messages / makespan,
        exposed_seconds=to_seconds(exposure.exposed_picoseconds),
        hidden_seconds=to_seconds(exposure.hidden_picoseconds),
        queued_seconds=to_seconds(exposure.queued_picoseconds),
        seconds_ranges=seconds_ranges(**times),
        bytes_ranges=bytes_ranges(bytes=spread(size)),
    )


def _pair(pair: RankPair, spread: SpreadOf, *, backward: bool) -> PairOut:
    return PairOut(
        source_rank=pair.source_rank,
        target_rank=pair.target_rank,
        source_device=or_unset(pair.source_device),
        target_device=or_unset(pair.target_device),
        forward=_pair_direction(
            pair.forward_path, pair.forward_bound_picoseconds, pair.forward_picoseconds, spread
        ),
        backward=_pair_direction(
            pair.backward_path, pair.backward_bound_picoseconds, pair.backward_picoseconds, spread
        )
        if backward
        else msgspec.UNSET,
    )


def _pair_direction(
    path: PhysicalPath | None, bound: Amount | None, predicted: Amount | None, spread: SpreadOf
) -> PairDirection:
    times = {"lower_bound_seconds": spread(bound), "transfer_seconds": spread(predicted)}
    return PairDirection(
        path=msgspec.UNSET if path is None else PathOut(**path_fields(path)),
        lower_bound_seconds=mean_seconds(times["lower_bound_seconds"]),
        transfer_seconds=mean_seconds(times["transfer_seconds"]),
        seconds_ranges=seconds_ranges(**times),
    )
