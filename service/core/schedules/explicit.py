"""An order that is written out, operation by operation, instead of following from a rule.

One text a rank, operations separated by spaces: `0F3` is the forward of microbatch 3 on stage 0;
B is a whole backward, I and W its two halves, R a recomputation, and `0F3&7B1` a forward and a
backward as one pair.
"""

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind
from service.core.schedules.shape import Backward, Placement, Shape

__all__ = [
    "check_explicit",
    "explicit_backward",
    "explicit_order",
    "explicit_placement",
    "has_recompute",
]

_WORD = re.compile(r"(\d{1,6})([FBIWR])(\d{1,9})")
_PAIR = re.compile(r"(\d{1,6})F(\d{1,9})&(\d{1,6})B(\d{1,9})")
_LETTERS = {kind.letter: kind for kind in OpKind}
# An order can be wrong in as many places as it has operations; the first few tell the story.
_MOST_FAULTS = 20

# kind, stage, microbatch, stage and microbatch of the backward
_Read = tuple[OpKind, int, int, int, int]
_Columns = npt.NDArray[np.int32]


def check_explicit(shape: Shape) -> list[Fault]:
    """Whether the order can be read, names every stage, and has the microbatches of the workload.

    What it lacks, doubles or can't ever run is told when the program is assembled.
    """
    return list(_check(shape))


@lru_cache(maxsize=32)
def _check(shape: Shape) -> tuple[Fault, ...]:
    if shape.order is None:
        detail = "an explicit schedule states its order: one text a rank, such as '0F0 0B0'"
        return (Fault(FaultCode.MISSING_FIELD, ("schedule", "order"), detail),)
    faults = []
    if len(shape.order) != shape.ranks:
        detail = f"one text for each of {shape.ranks} ranks; got {len(shape.order)}"
        faults.append(Fault(FaultCode.WRONG_LENGTH, ("schedule", "order"), detail))
    for rank, text in enumerate(shape.order):
        unread = [word for word in text.split() if _read_word(word) is None]
        for word in unread[:_MOST_FAULTS]:
            detail = f"an operation reads like 0F3, 0B3, 0I3, 0W3, 0R3 or 0F3&7B1; got {word[:40]}"
            faults.append(Fault(FaultCode.UNREADABLE, ("schedule", "order", rank), detail))
    return tuple(faults[:_MOST_FAULTS] or _check_counts(shape))


def _check_counts(shape: Shape) -> list[Fault]:
    """Refuse early what would make large tables out of a short text."""
    path = ("schedule", "order")
    operations = np.concatenate(_read_order(shape.order or ()))
    stages = np.unique(operations[:, [1, 3]])
    if not len(stages) or stages[-1] != len(stages) - 1:
        missing = np.setdiff1d(np.arange(len(stages) + 1), stages)[0]
        detail = f"stages are numbered from 0 without a gap; there is no stage {missing}"
        return [Fault(FaultCode.ILLEGAL_SCHEDULE, path, detail)]
    forwards = np.isin(operations[:, 0], (OpKind.FORWARD, OpKind.FORWARD_BACKWARD)).sum()
    if forwards != len(stages) * shape.microbatches:
        detail = (
            f"{shape.microbatches} microbatches on {len(stages)} stages have "
            f"{shape.microbatches * len(stages)} forwards; the order has {forwards}"
        )
        return [Fault(FaultCode.ILLEGAL_SCHEDULE, path, detail)]
    return []


def explicit_order(rank: int, shape: Shape) -> RankOrder:
    """The order of a rank, read from its text, which `check_explicit` has passed."""
    columns = _read_order(shape.order or ())[rank].T
    kind = columns[0].astype(np.int8)
    if not (kind == OpKind.FORWARD_BACKWARD).any():
        return RankOrder(kind, columns[1], columns[2])
    return RankOrder(kind, columns[1], columns[2], columns[3], columns[4])


@lru_cache(maxsize=32)
def explicit_placement(shape: Shape) -> Placement:
    """Each stage on the rank that runs it; one direction."""
    homes: dict[int, int] = {}
    for rank, operations in enumerate(_read_order(shape.order or ())):
        homes.update(dict.fromkeys(np.unique(operations[:, [1, 3]]).tolist(), rank))
    return (tuple(homes[stage] for stage in range(len(homes))),)


@lru_cache(maxsize=32)
def explicit_backward(order: tuple[str, ...]) -> Backward:
    """Split where any backward is, none where there is no backward at all."""
    text = " ".join(order)
    if "W" in text or "I" in text:
        return Backward.SPLIT
    return Backward.WHOLE if "B" in text else Backward.NONE


def has_recompute(shape: Shape) -> bool:
    """Whether the order says itself where recomputations stand."""
    return any("R" in text for text in shape.order or ())


@lru_cache(maxsize=4)
def _read_order(order: tuple[str, ...]) -> tuple[_Columns, ...]:
    """(operations, 5) of each rank, without what can't be read."""
    ranks = []
    for text in order:
        words = (_read_word(word) for word in text.split())
        read = [word for word in words if word is not None]
        ranks.append(np.array(read, dtype=np.int32).reshape(-1, 5))
    return tuple(ranks)


def _read_word(word: str) -> _Read | None:
    if match := _WORD.fullmatch(word):
        stage, microbatch = int(match[1]), int(match[3])
        return _LETTERS[match[2]], stage, microbatch, stage, microbatch
    if match := _PAIR.fullmatch(word):
        return OpKind.FORWARD_BACKWARD, int(match[1]), int(match[2]), int(match[3]), int(match[4])
    return None
