"""Wire types of the weight versions that microbatches meet where a pipeline is never drained."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.schedules.weight_versions import RankVersions

__all__ = ["VersionsOfRank", "WeightVersions", "weight_versions_terms"]

MAX_VERSIONS = 1024


class VersionsOfRank(msgspec.Struct, kw_only=True, frozen=True):
    """One pipeline rank. Versions are counted in updates since the start of the iteration."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    copies: Annotated[
        int,
        Meta(
            ge=1,
            description="Versions of its weights that are needed at one moment, once the pipeline "
            "is full.",
        ),
    ]
    delay_updates: Annotated[
        int,
        Meta(
            ge=0,
            description="By how many updates the version of the last microbatch is older than the "
            "one that its gradient changes.",
        ),
    ]
    versions: Annotated[
        list[int],
        Meta(description="With which each microbatch runs, forward and backward; the first 1024."),
    ]


class WeightVersions(msgspec.Struct, kw_only=True, frozen=True):
    """The versions of the weights on every rank."""

    ranks: list[VersionsOfRank]


def weight_versions_terms(ranks: Sequence[RankVersions]) -> WeightVersions:
    """The wire form of a plan's weight versions."""
    return WeightVersions(
        ranks=[
            VersionsOfRank(
                rank=versions.rank,
                copies=versions.copies,
                delay_updates=versions.delay,
                versions=versions.versions[:MAX_VERSIONS].tolist(),
            )
            for versions in ranks
        ]
    )
