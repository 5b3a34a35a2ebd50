"""Which version of the weights each microbatch meets where a pipeline is never drained.

PipeDream (2019) updates after every microbatch: a backward uses the version that its forward used,
so a rank keeps a copy for every microbatch it has in flight. PipeDream-2BW (2021) gathers the
gradients of an iteration: two copies do, and every update is computed with weights one update old.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode
from service.core.schedules.program import OpKind, Program
from service.core.schedules.shape import Shape

__all__ = ["RankVersions", "Update", "check_update_interval", "weight_versions"]


class Update(StrEnum):
    """When an asynchronous schedule changes the weights."""

    EVERY_MICROBATCH = "every_microbatch"
    EVERY_ITERATION = "every_iteration"


@dataclass(frozen=True, slots=True, eq=False)
class RankVersions:
    """One rank's versions, counted in updates since the start.

    `versions` is (microbatches,): the one with which a microbatch's forward and backward run.
    `copies` is how many different ones are needed at one moment at most once the pipeline is full,
    `delay` by how many updates the last microbatch's version is older than the one that its
    gradient changes.
    """

    rank: int
    copies: int
    delay: int
    versions: npt.NDArray[np.int64]


def check_update_interval(shape: Shape) -> list[Fault]:
    """At least as many microbatches an update as ranks, or two copies would not do."""
    if shape.microbatches >= shape.ranks:
        return []
    detail = (
        f"an update gathers at least one microbatch a rank: {shape.ranks}; got {shape.microbatches}"
    )
    return [Fault(FaultCode.ILLEGAL_SCHEDULE, ("workload", "microbatches"), detail)]


def weight_versions(program: Program, update: Update) -> tuple[RankVersions, ...]:
    """The versions of each rank of a program with one whole backward for each forward.

    For updates after every microbatch they follow from the order: a forward runs with the version
    that the backwards before it on its rank have made. The program is the first iteration, from an
    empty pipeline; later microbatches meet versions as old as those at its end. For updates after
    every iteration the versions are those of an iteration in the long run, where every microbatch
    runs with the weights of the iteration before: version 0 of two.
    """
    return tuple(
        _every_iteration(program, rank)
        if update is Update.EVERY_ITERATION
        else _every_microbatch(program, rank)
        for rank in range(program.ranks)
    )


def _every_microbatch(program: Program, rank: int) -> RankVersions:
    operations = slice(*program.rank_offsets[rank : rank + 2].tolist())
    kind, microbatch = program.kind[operations], program.microbatch[operations]
    made = np.cumsum(kind == OpKind.BACKWARD)  # versions made up to and including an operation
    forward = np.flatnonzero(kind == OpKind.FORWARD)
    versions = np.empty(program.microbatches, dtype=np.int64)
    versions[microbatch[forward]] = made[forward]
    last = int(program.microbatches - 1)
    return RankVersions(
        rank=rank,
        # One for each microbatch in flight. Few microbatches that start on an empty pipeline share
        # the first version; those of the next iterations, which follow at once, do not.
        copies=program.ranks - rank,
        delay=last - int(versions[last]),
        versions=versions,
    )


def _every_iteration(program: Program, rank: int) -> RankVersions:
    versions = np.zeros(program.microbatches, dtype=np.int64)
    return RankVersions(rank=rank, copies=2, delay=1, versions=versions)
