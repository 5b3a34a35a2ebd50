"""Wire types of the live activations."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.core.memory.live import LiveActivations as CoreLiveActivations
from service.core.memory.live import series_times
from service.core.schedules.timeline import Timeline
from service.core.units import all_to_seconds, to_seconds

__all__ = [
    "AliveActivation",
    "LiveActivations",
    "LiveActivationsAnswer",
    "LiveRank",
    "LiveSeries",
    "live_activations_terms",
]

# Longer iterations would make answers of many megabytes; their peaks are given all the same.
MAX_SERIES_OPERATIONS = 20_000
MAX_ALIVE = 1024


class AliveActivation(msgspec.Struct, kw_only=True, frozen=True):
    """The activations of one microbatch on one stage."""

    stage: Annotated[int, Meta(ge=0)]
    microbatch: Annotated[int, Meta(ge=0)]


class LiveSeries(msgspec.Struct, kw_only=True, frozen=True):
    """Activations alive after each change, as columns."""

    at_seconds: list[float]
    activations: list[int]


class LiveRank(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One pipeline rank at its first peak."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    peak_activations: Annotated[
        int, Meta(ge=0, description="Counted in activations of one microbatch on one stage.")
    ]
    peak_bytes: Annotated[
        int | msgspec.UnsetType,
        Meta(
            description=(
                "Largest sum of bytes alive, on each device of the rank; reached at a moment of "
                "its own. Absent when the bytes of an activation are not known on every stage."
            )
        ),
    ] = msgspec.UNSET
    at_seconds: Annotated[
        float, Meta(ge=0, description="When peak_activations is first reached (predicted).")
    ]
    alive: Annotated[
        list[AliveActivation],
        Meta(description="What is alive at that moment, up to the first 1024 by microbatch."),
    ]
    series: Annotated[
        LiveSeries | msgspec.UnsetType, Meta(description="Absent for very long iterations.")
    ] = msgspec.UNSET


class LiveActivations(msgspec.Struct, kw_only=True, frozen=True):
    """Peak live activations of every rank; set by the order alone, never by durations."""

    ranks: list[LiveRank]


LiveActivationsAnswer = answer_type("LiveActivationsAnswer", LiveActivations)


def live_activations_terms(
    timeline: Timeline, ranks: Sequence[CoreLiveActivations]
) -> LiveActivations:
    """The wire form of a plan's live activations."""
    with_series = timeline.program.operations <= MAX_SERIES_OPERATIONS
    return LiveActivations(
        ranks=[
            LiveRank(
                rank=live.rank,
                peak_activations=live.peak_activations,
                peak_bytes=msgspec.UNSET if live.peak_bytes is None else live.peak_bytes,
                at_seconds=to_seconds(int(timeline.run.start[live.peak_operation])),
                alive=[
                    AliveActivation(stage=stage, microbatch=microbatch)
                    for stage, microbatch in live.alive[:MAX_ALIVE]
                ],
                series=_series(timeline, live) if with_series else msgspec.UNSET,
            )
            for live in ranks
        ]
    )


def _series(timeline: Timeline, live: CoreLiveActivations) -> LiveSeries:
    return LiveSeries(
        at_seconds=all_to_seconds(series_times(timeline, live)),
        activations=live.series_count.tolist(),
    )
