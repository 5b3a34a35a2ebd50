"""The load of each device by a published rule, apart from any simulation.

Planners compare partitions by the load of the busiest device. To hold a plan against a published
value it is counted by the rule of that planner, whatever the schedule would make of it.

`dnn_partitioning` (Tarnawski et al., Efficient algorithms for device placement of DNN graph
operators, NeurIPS 2020): the times of the device's nodes, and the recorded time of each tensor that
leaves it, once, and of each that enters it, once. Where a tensor is carried through the stages
between, it enters and leaves each of these as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["DeviceLoad", "Handover", "LoadRule", "carried", "straight"]


class LoadRule(StrEnum):
    """Whose rule a load is counted by."""

    DNN_PARTITIONING = "dnn_partitioning"


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """What one microbatch takes of the devices of one pipeline rank, in picoseconds."""

    rank: int
    compute_picoseconds: int
    sending_picoseconds: int
    receiving_picoseconds: int

    @property
    def picoseconds(self) -> int:
        """All of it, one thing after the other."""
        return self.compute_picoseconds + self.sending_picoseconds + self.receiving_picoseconds


# The pipeline ranks that send a tensor, each time it does, and those that receive it.
Handover = tuple[list[int], list[int]]


def straight(rank_of_stage: Sequence[int], source: int, targets: Sequence[int]) -> Handover:
    """Stage `source` sends once, however many of the stages `targets` are on other ranks."""
    home = rank_of_stage[source]
    receivers = sorted({rank_of_stage[target] for target in targets} - {home})
    return ([home] if receivers else []), receivers


def carried(rank_of_stage: Sequence[int], source: int, targets: Sequence[int]) -> Handover:
    """Each stage on the way passes it on, later and earlier stages being two ways."""
    hops = [*_hops(source, max([source, *targets])), *_hops(source, min([source, *targets]))]
    across = [(rank_of_stage[a], rank_of_stage[b]) for a, b in hops]
    across = [(a, b) for a, b in across if a != b]
    return [a for a, _ in across], [b for _, b in across]


def _hops(source: int, furthest: int) -> Iterator[tuple[int, int]]:
    step = 1 if furthest > source else -1
    return ((stage, stage + step) for stage in range(source, furthest, step))
