"""The table of schedule families. A new family is one module with its order and one row here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules import closed_forms
from service.core.schedules.chimera import check_chimera, chimera_order
from service.core.schedules.closed_forms import ClosedForm
from service.core.schedules.dual_pipe import (
    check_dual_pipe,
    check_dual_pipe_v,
    dual_pipe_order,
    dual_pipe_v_order,
)
from service.core.schedules.explicit import (
    check_explicit,
    explicit_backward,
    explicit_order,
    explicit_placement,
)
from service.core.schedules.forward_only import forward_only_order
from service.core.schedules.gpipe import gpipe_order
from service.core.schedules.interleaved import check_groups, group_of, interleaved_orders
from service.core.schedules.looped_bfs import looped_bfs_order
from service.core.schedules.one_f_one_b import one_f_one_b_order
from service.core.schedules.order_costs import OrderCosts
from service.core.schedules.orders import RankOrder, each_rank
from service.core.schedules.program import OpKind
from service.core.schedules.shape import (
    Backward,
    Placement,
    Shape,
    loop_placement,
    two_way_placement,
    v_placement,
)
from service.core.schedules.v_blocks import V_PASSES
from service.core.schedules.v_half import v_half_orders
from service.core.schedules.v_min import v_min_orders
from service.core.schedules.weight_versions import (
    Update,
    check_update_interval,
)
from service.core.schedules.zb_auto import MOST_PASSES, check_memory_limit, zb_auto_orders
from service.core.schedules.zb_v import zb_v_order
from service.core.schedules.zero_bubble import (
    interleaved_zero_bubble_order,
    zb_h1_order,
    zb_h2_order,
)

__all__ = ["SCHEDULES", "ScheduleFamily", "check_shape", "schedule_family"]

Phase = frozenset[OpKind]

_FORWARD: Phase = frozenset({OpKind.FORWARD})
_BACKWARD: Phase = frozenset({OpKind.RECOMPUTE, OpKind.BACKWARD})
_ALL: Phase = frozenset(OpKind)


def _legal(_shape: Shape) -> list[Fault]:
    return []


def _whole(_shape: Shape) -> Backward:
    return Backward.WHOLE


def _split(_shape: Shape) -> Backward:
    return Backward.SPLIT


def _forward_only(_shape: Shape) -> Backward:
    return Backward.NONE


def _of_order(shape: Shape) -> Backward:
    return explicit_backward(shape.order or ())


def _every_microbatch(_shape: Shape) -> int:
    return 1


def _group(shape: Shape) -> int:
    # With fewer microbatches than ranks the group is all of them; more would come P at a time.
    return max(group_of(shape), shape.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFamily:
    """One row of the table.

    `orders(shape)` gives what each rank runs, without recompute and with pairs as one operation;
    `check(shape)` every reason why the counts are not legal, beyond those of `chunks`, the stages
    that one rank may have (None: any number). `placement` lays stages on ranks in each direction.

    In a long iteration the order repeats itself every `period(shape)` microbatches, in each of its
    `phases`, which run one after the other on a rank; warm-up and cool-down take at most
    `lead` microbatches for each stage and direction. None: there is no one steady state.

    Where it `follows_costs` the order is made for the times, transfers and memory of `shape.costs`;
    elsewhere these are left out of a shape. `passes` is how often making an order goes over all
    operations at most, beyond writing it down.

    `gains_in_span` says that its order shortens the time from each rank's first operation to its
    last, and not the makespan.

    `update` is None where the pipeline is drained before weights change, so that all microbatches
    of an iteration meet the same ones.
    """

    name: str
    description: str
    orders: Callable[[Shape], Sequence[RankOrder]]
    backward: Callable[[Shape], Backward] = _whole
    check: Callable[[Shape], list[Fault]] = _legal
    placement: Callable[[Shape], Placement] = loop_placement
    chunks: int | None = 1
    directions: int = 1
    takes_groups: bool = False
    takes_order: bool = False
    takes_memory_limit: bool = False
    follows_costs: bool = False
    passes: int = 0
    has_pairs: bool = False
    gains_in_span: bool = False
    phases: tuple[Phase, ...] = (_ALL,)
    period: Callable[[Shape], int] | None = _every_microbatch
    lead: int = 1
    closed_form: ClosedForm | None = None
    update: Update | None = None

    def shape(
        self,
        ranks: int,
        microbatches: int,
        *,
        chunks_per_rank: int | None = None,
        group_size: int | None = None,
        order: tuple[str, ...] | None = None,
        memory_limit_activations: int | None = None,
        costs: OrderCosts | None = None,
    ) -> Shape:
        """The counts with this family's own number of chunks where none is given.

        What the family's order does not follow from is left out, so that equal orders are one.
        """
        chunks = (self.chunks or 1) if chunks_per_rank is None else chunks_per_rank
        followed = costs if self.follows_costs else None
        return Shape(
            ranks, microbatches, chunks, group_size, order, memory_limit_activations, followed
        )


_FAMILIES = (
    ScheduleFamily(
        name="forward_only",
        description="Forwards alone, in microbatch order; an activation is freed as it is used.",
        backward=_forward_only,
        orders=each_rank(forward_only_order),
        phases=(_FORWARD,),
        closed_form=closed_forms.ONE_STAGE_A_RANK,
    ),
    ScheduleFamily(
        name="gpipe",
        description="All forwards, then all backwards; every microbatch's activations are kept.",
        orders=each_rank(gpipe_order),
        phases=(_FORWARD, _BACKWARD),
        closed_form=closed_forms.ONE_STAGE_A_RANK,
    ),
    ScheduleFamily(
        name="1f1b",
        description="One forward, one backward: rank r keeps at most P - r microbatches alive.",
        orders=each_rank(one_f_one_b_order),
        closed_form=closed_forms.ONE_STAGE_A_RANK,
    ),
    ScheduleFamily(
        name="interleaved_1f1b",
        description="1F1B over several chunks a rank, microbatches in groups.",
        orders=interleaved_orders,
        check=check_groups,
        chunks=None,
        takes_groups=True,
        period=_group,
        lead=2,
        closed_form=closed_forms.SEVERAL_CHUNKS,
    ),
    ScheduleFamily(
        name="looped_bfs",
        description="Chunk by chunk, each for all microbatches; every activation is kept.",
        orders=each_rank(looped_bfs_order),
        chunks=None,
        period=None,
        closed_form=closed_forms.SEVERAL_CHUNKS,
    ),
    ScheduleFamily(
        name="zb_h1",
        description="Split backwards, the weight half late: the memory of 1F1B, less bubble.",
        backward=_split,
        orders=each_rank(zb_h1_order),
        closed_form=closed_forms.ZERO_BUBBLE_H1,
    ),
    ScheduleFamily(
        name="zb_h2",
        description="Split backwards and a longer warm-up: twice the memory, hardly any bubble.",
        backward=_split,
        orders=each_rank(zb_h2_order),
        gains_in_span=True,
        lead=2,
        closed_form=closed_forms.ZERO_BUBBLE_H2,
    ),
    ScheduleFamily(
        name="interleaved_zero_bubble",
        description="Several chunks a rank, microbatches in groups, the weight half late.",
        backward=_split,
        orders=each_rank(interleaved_zero_bubble_order),
        check=check_groups,
        chunks=None,
        takes_groups=True,
        period=_group,
        lead=2,
        closed_form=closed_forms.ZERO_BUBBLE_H1,
    ),
    ScheduleFamily(
        name="zb_v",
        description="Two stages a rank in a V, split backwards: no bubble when F = I = W.",
        backward=_split,
        orders=each_rank(zb_v_order),
        placement=v_placement,
        chunks=2,
        closed_form=closed_forms.ZERO_BUBBLE_V,
    ),
    ScheduleFamily(
        name="zb_auto",
        description="Split backwards, ordered for the plan's times within a limit of memory.",
        backward=_split,
        orders=zb_auto_orders,
        check=check_memory_limit,
        takes_memory_limit=True,
        follows_costs=True,
        passes=MOST_PASSES,
        period=None,
    ),
    ScheduleFamily(
        name="v_half",
        description="Two stages a rank in a V, split backwards: about half the memory of 1F1B.",
        backward=_split,
        orders=v_half_orders,
        placement=v_placement,
        chunks=2,
        passes=V_PASSES,
        period=None,
    ),
    ScheduleFamily(
        name="v_min",
        description="Two stages a rank in a V, split backwards: about a third of that memory.",
        backward=_split,
        orders=v_min_orders,
        placement=v_placement,
        chunks=2,
        passes=V_PASSES,
        period=None,
    ),
    ScheduleFamily(
        name="dualpipe",
        description="From both ends, forwards paired with backwards; two copies of weights.",
        backward=_split,
        orders=each_rank(dual_pipe_order),
        check=check_dual_pipe,
        placement=two_way_placement,
        directions=2,
        has_pairs=True,
        period=lambda _shape: 2,
        closed_form=closed_forms.DUAL_PIPE,
    ),
    ScheduleFamily(
        name="dualpipe_v",
        description="Two stages a rank in a V, forwards of one paired with backwards of the other.",
        backward=_split,
        orders=each_rank(dual_pipe_v_order),
        check=check_dual_pipe_v,
        placement=v_placement,
        chunks=2,
        has_pairs=True,
        closed_form=closed_forms.DUAL_PIPE_V,
    ),
    ScheduleFamily(
        name="chimera",
        description="Two 1F1B pipelines in opposite directions; two copies of weights.",
        orders=each_rank(chimera_order),
        check=check_chimera,
        placement=two_way_placement,
        directions=2,
        period=lambda shape: shape.ranks,
        closed_form=closed_forms.CHIMERA,
    ),
    ScheduleFamily(
        name="pipedream",
        description="1F1B that is never drained: weights change after every microbatch.",
        orders=each_rank(one_f_one_b_order),
        update=Update.EVERY_MICROBATCH,
    ),
    ScheduleFamily(
        name="pipedream_2bw",
        description="1F1B that is never drained: weights change once an iteration, one late.",
        orders=each_rank(one_f_one_b_order),
        check=check_update_interval,
        update=Update.EVERY_ITERATION,
    ),
    ScheduleFamily(
        name="explicit",
        description="What each rank runs is written out in the plan.",
        backward=_of_order,
        orders=each_rank(explicit_order),
        check=check_explicit,
        placement=explicit_placement,
        chunks=None,
        takes_order=True,
        has_pairs=True,
        period=None,
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


# Fields that some families take: the value in a shape, and whether a family does.
_OPTIONS: tuple[tuple[str, Callable[[Shape], object], Callable[[ScheduleFamily], bool]], ...] = (
    ("group_size", lambda shape: shape.group_size, lambda family: family.takes_groups),
    ("order", lambda shape: shape.order, lambda family: family.takes_order),
    (
        "memory_limit_activations",
        lambda shape: shape.memory_limit_activations,
        lambda family: family.takes_memory_limit,
    ),
)


def _names(wanted: Callable[[ScheduleFamily], bool]) -> str:
    """The families that are so, in words."""
    return " or ".join(family.name for family in _FAMILIES if wanted(family))


def check_shape(family: ScheduleFamily, shape: Shape) -> list[Fault]:
    """Every reason why a family can't run these counts (each at least 1), saying what is legal."""
    faults = []
    if family.chunks is not None and shape.chunks_per_rank != family.chunks:
        what = f"{family.chunks} chunk{'s' * (family.chunks > 1)} on each rank"
        others = _names(lambda other: other.chunks is None and not other.takes_order)
        detail = f"{family.name} runs {what}, {others} any number; got {shape.chunks_per_rank}"
        faults.append(Fault(FaultCode.ILLEGAL_SCHEDULE, ("schedule", "chunks_per_rank"), detail))
    for field, given, takes in _OPTIONS:
        if given(shape) is not None and not takes(family):
            detail = f"{family.name} takes none: leave it out, or use {_names(takes)}"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("schedule", field), detail))
    return faults + family.check(shape)
