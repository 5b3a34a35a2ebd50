"""Wire types of the live activations."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.api.schemas.ranges import BytesRanges, bytes_ranges, same_bytes
from service.core.amounts import SizeClasses
from service.core.memory.live import LiveActivations as CoreLiveActivations
from service.core.memory.live import series_times
from service.core.plans.plan import ResolvedPlan
from service.core.plans.relays import Relayed, relayed_bytes
from service.core.schedules.program import Program
from service.core.schedules.timeline import Timeline
from service.core.units import all_to_seconds, to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "AliveActivation",
    "LiveActivations",
    "LiveActivationsAnswer",
    "LiveRank",
    "LiveSeries",
    "RelayedOut",
    "live_activations_terms",
]

# Longer iterations would make answers of many megabytes; their peaks are given all the same.
MAX_SERIES_OPERATIONS = 20_000
MAX_ALIVE = 1024


class AliveActivation(msgspec.Struct, kw_only=True, frozen=True):
    """The activations of one microbatch on one stage."""

    stage: Annotated[int, Meta(ge=0)]
    microbatch: Annotated[int, Meta(ge=0)]


class LiveSeries(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Activations alive after each change, in the order of the rank, as columns."""

    at_seconds: Annotated[
        list[float] | msgspec.UnsetType,
        Meta(description="When (predicted). Absent where nothing was simulated."),
    ] = msgspec.UNSET
    activations: list[int]
    recomputed: Annotated[
        list[int] | msgspec.UnsetType,
        Meta(description="How many of them are alive anew. Absent where nothing is recomputed."),
    ] = msgspec.UNSET


class LiveRank(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One pipeline rank at its first peak by count, and its peak by bytes."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    peak_activations: Annotated[
        int,
        Meta(
            ge=0,
            description="Counted in activations of one microbatch on one stage, from the forward "
            "to the backward that frees it; where it is recomputed in between, what is kept for "
            "that counts.",
        ),
    ]
    peak_recomputed_activations: Annotated[
        Annotated[int, Meta(ge=0)] | msgspec.UnsetType,
        Meta(
            description="How many of these are alive anew at once at the most: from the start of "
            "their recomputation until the backward frees them. Absent where nothing is recomputed."
        ),
    ] = msgspec.UNSET
    peak_bytes: Annotated[
        int | msgspec.UnsetType,
        Meta(
            description=(
                "Largest sum of bytes alive, on each device of the rank. Absent when the bytes of "
                "an activation are not known on every stage."
            )
        ),
    ] = msgspec.UNSET
    peak_bytes_at_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | msgspec.UnsetType,
        Meta(
            description=(
                "When peak_bytes is first reached (predicted), which need not be at_seconds. "
                "Absent where nothing was simulated."
            ),
        ),
    ] = msgspec.UNSET
    peak_bytes_at_operation: Annotated[
        str | msgspec.UnsetType,
        Meta(description="At whose start that is. There exactly when peak_bytes is."),
    ] = msgspec.UNSET
    at_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | msgspec.UnsetType,
        Meta(
            description="When peak_activations is first reached (predicted). Absent where nothing "
            "was simulated."
        ),
    ] = msgspec.UNSET
    at_operation: Annotated[
        str,
        Meta(
            description="At whose start that is: stage, kind, microbatch, as in an order.",
            examples=["0F3"],
        ),
    ]
    alive: Annotated[
        list[AliveActivation],
        Meta(description="What is alive then, up to the first 1024 by microbatch."),
    ]
    series: Annotated[
        LiveSeries | msgspec.UnsetType, Meta(description="Absent for very long iterations.")
    ] = msgspec.UNSET


class RelayedOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Tensors of other stages that a stage passes on, of one microbatch on each device."""

    stage: Annotated[int, Meta(ge=0)]
    tensors: list[str]
    forward_bytes: Annotated[
        int | msgspec.UnsetType,
        Meta(
            description="Held from the start of the forward to its end. Absent when microbatches "
            "differ: see bytes_ranges."
        ),
    ] = msgspec.UNSET
    backward_bytes: Annotated[
        int | msgspec.UnsetType,
        Meta(description="Of their gradients, held likewise in the backward."),
    ] = msgspec.UNSET
    bytes_ranges: BytesRanges = msgspec.UNSET


class LiveActivations(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Peak live activations of every rank; set by the order alone, never by durations.

    So counts, bytes and what is alive are exact for that order. Only the seconds are predictions.
    """

    simulated: Annotated[
        bool, Meta(description="Whether the order was simulated, so that the seconds are there.")
    ]
    ranks: list[LiveRank]
    relayed: Annotated[
        list[RelayedOut] | msgspec.UnsetType,
        Meta(
            description="What stages hold of others on its way; counted in peak_bytes, never in "
            "peak_activations. Absent where nothing is relayed."
        ),
    ] = msgspec.UNSET


LiveActivationsAnswer = answer_type("LiveActivationsAnswer", LiveActivations)


def live_activations_terms(
    resolved: ResolvedPlan,
    program: Program,
    ranks: Sequence[CoreLiveActivations],
    timeline: Timeline | None,
) -> LiveActivations:
    """The wire form of a plan's live activations, with seconds from a timeline of the program."""
    with_series = program.operations <= MAX_SERIES_OPERATIONS

    def seconds(operation: int | None) -> float | msgspec.UnsetType:
        # All is added at the start of an operation, so that is where a peak is first reached.
        if timeline is None or operation is None:
            return msgspec.UNSET
        return to_seconds(int(timeline.run.start[operation]))

    return LiveActivations(
        simulated=timeline is not None,
        ranks=[
            LiveRank(
                rank=live.rank,
                peak_activations=live.peak_activations,
                peak_recomputed_activations=msgspec.UNSET
                if live.peak_recomputed is None
                else live.peak_recomputed,
                peak_bytes=or_unset(live.peak_bytes),
                peak_bytes_at_seconds=seconds(live.peak_bytes_operation),
                peak_bytes_at_operation=msgspec.UNSET
                if live.peak_bytes_operation is None
                else program.label(live.peak_bytes_operation),
                at_seconds=seconds(live.peak_operation),
                at_operation=program.label(live.peak_operation),
                alive=[
                    AliveActivation(stage=stage, microbatch=microbatch)
                    for stage, microbatch in live.alive[:MAX_ALIVE]
                ],
                series=_series(timeline, live) if with_series else msgspec.UNSET,
            )
            for live in ranks
        ],
        relayed=[_relayed(one, resolved.sizes) for one in relayed_bytes(resolved.boundaries)]
        or msgspec.UNSET,
    )


def _relayed(relayed: Relayed, sizes: SizeClasses) -> RelayedOut:
    ahead, back = sizes.spread(relayed.forward_bytes), sizes.spread(relayed.backward_bytes)
    return RelayedOut(
        stage=relayed.stage,
        tensors=list(relayed.tensors),
        forward_bytes=same_bytes(ahead),
        backward_bytes=same_bytes(back),
        bytes_ranges=bytes_ranges(forward_bytes=ahead, backward_bytes=back),
    )


def _series(timeline: Timeline | None, live: CoreLiveActivations) -> LiveSeries:
    return LiveSeries(
        at_seconds=msgspec.UNSET
        if timeline is None
        else all_to_seconds(series_times(timeline, live)),
        activations=live.series_count.tolist(),
        recomputed=msgspec.UNSET
        if live.series_recomputed is None
        else live.series_recomputed.tolist(),
    )
