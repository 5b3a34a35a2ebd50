"""Wire types of the copies of tied weights, and of the exchange of their gradients."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.physical_paths import PathOut, path_fields
from service.core.plans.plan import ResolvedPlan
from service.core.plans.tied import CopyRanks, TiedCopies
from service.core.units import to_seconds

__all__ = ["CopyRanksOut", "TiedCopiesOut", "tied_copies_terms"]

Unset = msgspec.UnsetType
Seconds = Annotated[float, Meta(ge=0)]


class CopyRanksOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Ranks of equal tensor, context and data coordinates that each hold a copy."""

    ranks: Annotated[list[int], Meta(description="In the order of their ring.")]
    devices: Annotated[list[str] | Unset, Meta(description="Absent without a topology.")] = (
        msgspec.UNSET
    )
    paths: Annotated[
        list[PathOut] | Unset,
        Meta(
            description="From each rank to the next, and from the last to the first. Absent "
            "without a topology, and where nothing is exchanged."
        ),
    ] = msgspec.UNSET
    lower_bound_seconds: Annotated[
        Seconds | Unset,
        Meta(description="Of this exchange alone, by any algorithm over the ranks' own paths."),
    ] = msgspec.UNSET
    exchange_seconds: Annotated[
        Seconds | Unset,
        Meta(description="Predicted, of a ring all-reduce while all groups exchange."),
    ] = msgspec.UNSET


class TiedCopiesOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Tied weights that the same stages hold, and the exchange of their gradients."""

    weights: Annotated[
        list[str], Meta(description="Names of tied groups, or of parameters where they have none.")
    ]
    stages: Annotated[list[int], Meta(description="The stages whose layers hold them.")]
    pipeline_ranks: Annotated[
        list[int],
        Meta(description="One copy on each; stages of one pipeline rank share its copy."),
    ]
    parameter_count: Annotated[int, Meta(ge=1, description="Elements of one copy.")]
    rank_parameter_count: Annotated[int, Meta(ge=1, description="Of these on one rank, at most.")]
    rank_parameter_bytes: Annotated[int, Meta(ge=0, description="Bytes of these.")]
    rank_gradient_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="What one rank adds up with the other copies, once an iteration after the "
            "last backward; 0 where the schedule has no backward.",
        ),
    ]
    lower_bound_seconds: Annotated[
        Seconds | Unset,
        Meta(
            description="All groups together, from the first start to the last end. Absent "
            "without a topology, and where nothing is exchanged."
        ),
    ] = msgspec.UNSET
    exchange_seconds: Annotated[
        Seconds | Unset, Meta(description="Predicted; the slowest group. Absent as the bound is.")
    ] = msgspec.UNSET
    groups: Annotated[
        list[CopyRanksOut], Meta(description="Empty where one pipeline rank holds all stages.")
    ]


def tied_copies_terms(resolved: ResolvedPlan) -> list[TiedCopiesOut] | Unset:
    """The wire form of the weights that stand on several stages."""
    if not resolved.tied_copies:
        return msgspec.UNSET
    return [_copies(each) for each in resolved.tied_copies]


def _copies(copies: TiedCopies) -> TiedCopiesOut:
    return TiedCopiesOut(
        weights=list(copies.weights),
        stages=list(copies.stages),
        pipeline_ranks=list(copies.pipeline_ranks),
        parameter_count=copies.parameter_count,
        rank_parameter_count=copies.rank_parameter_count,
        rank_parameter_bytes=copies.rank_parameter_bytes,
        rank_gradient_bytes=copies.rank_gradient_bytes,
        lower_bound_seconds=_seconds(copies.bound_picoseconds),
        exchange_seconds=_seconds(copies.picoseconds),
        groups=[_ranks(group) for group in copies.groups],
    )


def _ranks(group: CopyRanks) -> CopyRanksOut:
    devices = [device for device in group.devices if device is not None]
    return CopyRanksOut(
        ranks=list(group.ranks),
        devices=devices or msgspec.UNSET,
        paths=[PathOut(**path_fields(path)) for path in group.paths] or msgspec.UNSET,
        lower_bound_seconds=_seconds(group.bound_picoseconds),
        exchange_seconds=_seconds(group.picoseconds),
    )


def _seconds(picoseconds: int | None) -> float | Unset:
    return msgspec.UNSET if picoseconds is None else to_seconds(picoseconds)
