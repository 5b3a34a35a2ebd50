"""The table of schedule families. A new family is one module with its order and one row here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.forward_only import forward_only_order
from service.core.schedules.gpipe import gpipe_order
from service.core.schedules.one_f_one_b import one_f_one_b_order
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind

__all__ = ["SCHEDULES", "ClosedForm", "ScheduleFamily", "schedule_family"]

Phase = frozenset[OpKind]

_FORWARD: Phase = frozenset({OpKind.FORWARD})
_BACKWARD: Phase = frozenset({OpKind.RECOMPUTE, OpKind.BACKWARD})


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A published formula of the makespan and the conditions under which it is exact."""

    name: str
    conditions: str
    # (ranks, microbatches, work of one stage on one microbatch) -> makespan, in the work's unit
    makespan: Callable[[int, int, int], int]


@dataclass(frozen=True, slots=True)
class ScheduleFamily:
    """One row of the table.

    `order(rank, ranks, microbatches, chunks_per_rank)` gives what a rank runs, without recompute.
    `check(ranks, microbatches, chunks_per_rank)` gives every reason why the counts are not legal.
    In a long iteration the order repeats itself every `period(ranks, chunks_per_rank)`
    microbatches, in each of its `phases`, which run one after the other on a rank.
    """

    name: str
    description: str
    has_backward: bool
    order: Callable[[int, int, int, int], RankOrder]
    check: Callable[[int, int, int], list[Fault]]
    phases: tuple[Phase, ...]
    period: Callable[[int, int], int]
    closed_form: ClosedForm | None


def _one_chunk(_ranks: int, _microbatches: int, chunks_per_rank: int) -> list[Fault]:
    if chunks_per_rank == 1:
        return []
    detail = f"this schedule runs 1 chunk on each rank; got {chunks_per_rank}"
    return [Fault(FaultCode.ILLEGAL_SCHEDULE, ("schedule", "chunks_per_rank"), detail)]


def _every_microbatch(_ranks: int, _chunks_per_rank: int) -> int:
    return 1


_EQUAL_STAGES = ClosedForm(
    name="(M + P - 1) x work of a stage",
    conditions=(
        "equal stages joined in a chain, transfers that take no time, and no recompute that "
        "starts before its gradient"
    ),
    makespan=lambda ranks, microbatches, work: (microbatches + ranks - 1) * work,
)

_FAMILIES = (
    ScheduleFamily(
        name="forward_only",
        description="Forwards alone, in microbatch order; an activation is freed as it is used.",
        has_backward=False,
        order=forward_only_order,
        check=_one_chunk,
        phases=(_FORWARD,),
        period=_every_microbatch,
        closed_form=_EQUAL_STAGES,
    ),
    ScheduleFamily(
        name="gpipe",
        description="All forwards, then all backwards; every microbatch's activations are kept.",
        has_backward=True,
        order=gpipe_order,
        check=_one_chunk,
        phases=(_FORWARD, _BACKWARD),
        period=_every_microbatch,
        closed_form=_EQUAL_STAGES,
    ),
    ScheduleFamily(
        name="1f1b",
        description="One forward, one backward: rank r keeps at most P - r microbatches alive.",
        has_backward=True,
        order=one_f_one_b_order,
        check=_one_chunk,
        phases=(_FORWARD | _BACKWARD,),
        period=_every_microbatch,
        closed_form=_EQUAL_STAGES,
    ),
)

SCHEDULES: Mapping[str, ScheduleFamily] = MappingProxyType(
    {family.name: family for family in _FAMILIES}
)


def schedule_family(name: str) -> ScheduleFamily:
    """The family of that name. Raises `InvalidInput` naming the known ones."""
    family = SCHEDULES.get(name)
    if family is None:
        detail = f"schedule.kind is one of {', '.join(SCHEDULES)}; got {name!r}"
        raise InvalidInput([Fault(FaultCode.UNKNOWN_NAME, ("schedule", "kind"), detail)])
    return family
