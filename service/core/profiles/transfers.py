"""Recorded times of handing tensors on, where a planner's input has times and no links."""

from dataclasses import dataclass

__all__ = ["RecordedTransfer"]


@dataclass(frozen=True, slots=True)
class RecordedTransfer:
    """What handing one tensor from its layer to a layer on another device takes, at either end.

    True at the recorded microbatch size only. A `backward` one is a gradient, or another value that
    the backward of the layer `source` hands out.
    """

    name: str
    source: str
    targets: tuple[str, ...]
    backward: bool
    microbatch_size: int
    picoseconds: int
