"""How a plan says that gradients are added up among the ranks that hold the same weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.units import to_picoseconds

__all__ = [
    "GradientReduction",
    "ReductionAlgorithm",
    "ReductionOverlap",
    "SecondsByPart",
    "TimeOrigin",
    "check_reduction",
    "check_seconds",
    "picoseconds_of",
]

# One time for all stages (or pipeline ranks), or one for each.
SecondsByPart = float | tuple[float, ...]


class ReductionAlgorithm(StrEnum):
    """What the ranks of a group do to add up their gradients."""

    RING = "ring"  # an all-reduce as a ring
    TREE = "tree"  # an all-reduce along two binary trees
    SHARDED = "sharded"  # a reduce-scatter as a ring, and an all-gather of weights after the step


class ReductionOverlap(StrEnum):
    """When the reduction of a stage begins, and so what it overlaps with."""

    NONE = "none"  # after the last operation of its ranks
    STAGES = "stages"  # when the stage's gradients are complete, beside other stages of its ranks
    BUCKETS = "buckets"  # part by part along the backward of the last microbatch


class TimeOrigin(StrEnum):
    """Where the time of what follows the schedule comes from."""

    GIVEN = "given"  # the plan says so itself
    COMPUTED = "computed"  # from bytes, and from what moves them


@dataclass(frozen=True, slots=True)
class GradientReduction:
    """As a plan states it; None stands for what follows from the rest of the plan.

    `seconds` stands in place of an algorithm: what the reduction of a stage takes, whatever the
    links.
    """

    algorithm: ReductionAlgorithm | None = None
    overlap: ReductionOverlap = ReductionOverlap.STAGES
    bucket_bytes: int | None = None
    seconds: SecondsByPart | None = None


def check_reduction(
    reduction: GradientReduction, *, is_sharded: bool, stages: int, path: Path
) -> Iterator[Fault]:
    """Every fault; `is_sharded` says whether the ranks split the optimizer's state."""
    buckets = reduction.overlap is ReductionOverlap.BUCKETS
    if buckets and reduction.seconds is not None:
        detail = "a given time is that of a whole stage: overlap is none or stages"
        yield Fault(FaultCode.EXCLUSIVE_FIELDS, (*path, "overlap"), detail)
    elif buckets and reduction.bucket_bytes is None:
        detail = "say how many bytes of gradients are reduced together"
        yield Fault(FaultCode.MISSING_FIELD, (*path, "bucket_bytes"), detail)
    if reduction.bucket_bytes is not None and not buckets:
        detail = "only with overlap buckets are gradients reduced in parts: leave this out"
        yield Fault(FaultCode.INCONSISTENT, (*path, "bucket_bytes"), detail)
    if reduction.algorithm is not None and reduction.seconds is not None:
        detail = "give an algorithm to be priced, or the seconds that it takes"
        yield Fault(FaultCode.EXCLUSIVE_FIELDS, (*path, "algorithm"), detail)
    elif reduction.algorithm is not None:
        sharded = reduction.algorithm is ReductionAlgorithm.SHARDED
        if sharded and not is_sharded:
            detail = "optimizer_sharding is none, so each rank needs all sums: ring or tree"
            yield Fault(FaultCode.INCONSISTENT, (*path, "algorithm"), detail)
        elif not sharded and is_sharded:
            detail = "with optimizer_sharding each rank needs the sums of its share alone: sharded"
            yield Fault(FaultCode.INCONSISTENT, (*path, "algorithm"), detail)
    if reduction.seconds is not None:
        yield from check_seconds(reduction.seconds, stages, "stages", (*path, "seconds"))


def check_seconds(seconds: SecondsByPart, parts: int, name: str, path: Path) -> Iterator[Fault]:
    """Lists of the wrong length, and times that can't be counted."""
    if isinstance(seconds, tuple) and len(seconds) != parts:
        detail = f"one for each of the {parts} {name}, or one number for all; {len(seconds)} given"
        yield Fault(FaultCode.WRONG_LENGTH, path, detail)
    given = enumerate(seconds) if isinstance(seconds, tuple) else [(None, seconds)]
    for index, one in given:
        try:
            to_picoseconds(one, path if index is None else (*path, index))
        except InvalidInput as invalid:
            yield from invalid.faults


def picoseconds_of(seconds: SecondsByPart, part: int) -> int:
    """The time of one stage (or pipeline rank), of times that `check_seconds` has passed."""
    return to_picoseconds(seconds[part] if isinstance(seconds, tuple) else seconds)
