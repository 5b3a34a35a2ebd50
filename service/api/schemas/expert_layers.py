"""Wire types of a layer with experts: who has how much to do, and what its step takes."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.allocations import BisectionOut, bisection_out
from service.api.schemas.expert_exchanges import ExpertExchange, expert_exchange
from service.core.estimates.experts.facts import EvenFacts, LayerFacts, StepFacts
from service.core.moe.assignments import RoutingLevel
from service.core.moe.buffers import low_latency_buffer_bytes
from service.core.moe.imbalance import Imbalance
from service.core.plans.moe.inputs import ExpertGroups
from service.core.topology.flows.network import Network
from service.core.units import to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "EvenRun",
    "ExpertLayerOut",
    "ExpertRun",
    "ExpertStep",
    "ImbalanceOut",
    "StageMatrix",
    "StepLowerBounds",
    "expert_run",
    "imbalance_out",
]

_Rows = Annotated[int, Meta(ge=0, description="A row is one token for one expert.")]
_Seconds = Annotated[float, Meta(ge=0)]
_Fraction = Annotated[float, Meta(ge=0, le=1)]


class ImbalanceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How unevenly rows fall."""

    busiest: Annotated[
        int,
        Meta(
            ge=0,
            description="The first of equals: an expert; a rank by its expert coordinate; a host "
            "by its number among those of the group.",
        ),
    ]
    most_rows: Annotated[float, Meta(ge=0, description="Of the busiest.")]
    mean_rows: Annotated[float, Meta(ge=0, description="Over all, those without rows too.")]
    max_over_mean_ratio: Annotated[
        float | UnsetType, Meta(description="At least 1; absent where there are no rows at all.")
    ] = UNSET
    straggler_loss_fraction: Annotated[
        _Fraction, Meta(description="1 - mean / max: what all others wait for the busiest.")
    ]


class StepLowerBounds(msgspec.Struct, kw_only=True, frozen=True):
    """What no overlap of dispatch, products and combine goes below, by family of routes.

    The longer of what any directed resource is busy with both exchanges, and of the products of the
    fullest rank; all at nominal rates. Products that follow a measured curve do not count.
    """

    pinned_seconds: _Seconds
    any_route_seconds: _Seconds


class ExpertStep(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One way through the layer for a microbatch, of the rank that takes longest over each part."""

    dispatch: ExpertExchange
    combine: ExpertExchange
    packing_seconds: _Seconds
    products_seconds: Annotated[_Seconds, Meta(description="Of the experts, tiles rounded up.")]
    unpacking_seconds: _Seconds
    fallback_seconds: _Seconds
    in_turn_seconds: Annotated[_Seconds, Meta(description="One part after the other.")]
    step_seconds: Annotated[
        _Seconds, Meta(description="With what the plan's overlap says; in the stage's time.")
    ]
    lower_bounds: StepLowerBounds | UnsetType = UNSET


class StageMatrix(msgspec.Struct, kw_only=True, frozen=True):
    """Bytes of one stage of the forward dispatch from each rank of the group to each.

    On the diagonal are those that stay: they are on no link.
    """

    bytes: list[list[int]]


class EvenRun(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The same layer with tokens that choose evenly, and the plan's less that."""

    most_rank_rows: _Rows
    wire_bytes: Annotated[_Rows, Meta(description="Of the forward dispatch.")]
    forward_seconds: _Seconds
    backward_seconds: _Seconds | UnsetType = UNSET
    more_rank_rows: Annotated[int, Meta(description="Rows of the busiest rank.")]
    more_wire_bytes: int
    more_forward_seconds: float
    more_backward_seconds: float | UnsetType = UNSET


class ExpertRun(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A layer in microbatches of one step of the routing and one length."""

    microbatches: Annotated[int, Meta(ge=1, description="Such ones in an iteration.")]
    routing_step: Annotated[int, Meta(ge=0, description="Counted from 0 in the routing's order.")]
    tokens_per_rank: _Rows
    routing_level: Annotated[RoutingLevel, Meta(description="What the numbers are computed from.")]
    copies_counted: Annotated[
        bool,
        Meta(description="Whether spared copies were counted; if not, they are what is expected."),
    ]
    experts: ImbalanceOut
    ranks: ImbalanceOut
    hosts: ImbalanceOut | UnsetType = UNSET
    busiest_plan_rank: Annotated[int, Meta(ge=0, description="The busiest rank's in the plan.")]
    capacity_rows: Annotated[
        int | UnsetType, Meta(description="Of an expert, by the plan's scope; absent without one.")
    ] = UNSET
    low_latency_buffer_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="What kernels with buffers of fixed size (DeepEP's low-latency ones) hold "
            "on a rank for so many tokens, before alignment; in no term of memory.",
        ),
    ]
    dropped_fraction: Annotated[_Fraction, Meta(description="Of all assignments.")]
    dropped_rows: _Rows
    fallback_rows: _Rows
    rerouted_rows: _Rows
    forward: ExpertStep
    backward: ExpertStep | UnsetType = UNSET
    even: Annotated[
        EvenRun | UnsetType, Meta(description="Absent where the plan's tokens choose evenly.")
    ] = UNSET
    bisection: Annotated[
        BisectionOut | UnsetType, Meta(description="Of the devices of the group.")
    ] = UNSET
    rows_by_rank: Annotated[
        list[_Rows] | UnsetType,
        Meta(description="By expert coordinate; absent in long answers."),
    ] = UNSET
    matrices: Annotated[
        list[StageMatrix] | UnsetType,
        Meta(description="Of each stage of the forward dispatch, where they were asked for."),
    ] = UNSET


class ExpertLayerOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A layer with experts."""

    layer: Annotated[int, Meta(ge=0, description="Its number among them, in execution order.")]
    stage: Annotated[int, Meta(ge=0)]
    name: Annotated[str | UnsetType, Meta(description="Absent without a model.")] = UNSET
    experts: Annotated[int, Meta(ge=1, description="How many there are, replicas not counted.")]
    top_k: Annotated[int, Meta(ge=1, description="Experts of each token.")]
    routing_layer: Annotated[
        int | UnsetType, Meta(description="The routing's own number of the layer it reads.")
    ] = UNSET
    recomputed: Annotated[bool, Meta(description="Whether its forward pair runs again.")]
    runs: list[ExpertRun]


def imbalance_out(found: Imbalance) -> ImbalanceOut:
    """The wire form of how unevenly rows fall."""
    return ImbalanceOut(
        busiest=found.busiest,
        most_rows=found.most_rows,
        mean_rows=found.mean_rows,
        max_over_mean_ratio=or_unset(found.max_over_mean),
        straggler_loss_fraction=found.straggler_loss_fraction,
    )


def expert_run(
    facts: LayerFacts,
    groups: ExpertGroups,
    group: int,
    network: Network | None,
    *,
    by_rank: bool,
    matrices: bool,
) -> ExpertRun:
    """The wire form of one run."""
    load, ranks = facts.load, groups.ranks[group].tolist()
    width = len(ranks) // len(load.rank_rows)

    def step(made: StepFacts) -> ExpertStep:
        return _step(made, ranks, network, by_rank=by_rank)

    return ExpertRun(
        microbatches=facts.microbatches,
        routing_step=facts.routing_step,
        tokens_per_rank=facts.tokens,
        routing_level=load.level,
        copies_counted=load.counted,
        experts=imbalance_out(facts.experts),
        ranks=imbalance_out(facts.ranks),
        hosts=UNSET if facts.hosts is None else imbalance_out(facts.hosts),
        busiest_plan_rank=ranks[facts.ranks.busiest * width],
        capacity_rows=or_unset(load.capacity),
        low_latency_buffer_bytes=low_latency_buffer_bytes(
            facts.layer.experts,
            facts.tokens,
            max(facts.forward.dispatch.copy_bytes, facts.forward.combine.copy_bytes),
        ),
        dropped_fraction=load.dropped_fraction,
        dropped_rows=int(load.dropped.sum()),
        fallback_rows=int(load.fallback.sum()),
        rerouted_rows=int(load.rerouted.sum()),
        forward=step(facts.forward),
        backward=UNSET if facts.backward is None else step(facts.backward),
        even=UNSET if facts.even is None else _even(facts, facts.even),
        bisection=bisection_out(facts.bisection),
        rows_by_rank=load.rank_rows.tolist() if by_rank else UNSET,
        matrices=[
            StageMatrix(bytes=(stage.between * facts.forward.dispatch.copy_bytes).tolist())
            for stage in facts.traffic.stages
        ]
        if matrices
        else UNSET,
    )


def _step(
    made: StepFacts, ranks: list[int], network: Network | None, *, by_rank: bool
) -> ExpertStep:
    return ExpertStep(
        dispatch=expert_exchange(made.dispatch, ranks, network, by_rank=by_rank),
        combine=expert_exchange(made.combine, ranks, network, by_rank=by_rank),
        packing_seconds=to_seconds(made.packing),
        products_seconds=to_seconds(made.products),
        unpacking_seconds=to_seconds(made.unpacking),
        fallback_seconds=to_seconds(made.fallback),
        in_turn_seconds=to_seconds(made.in_turn),
        step_seconds=to_seconds(made.step),
        lower_bounds=UNSET
        if made.bounds is None
        else StepLowerBounds(
            pinned_seconds=to_seconds(made.bounds.pinned),
            any_route_seconds=to_seconds(made.bounds.any_route),
        ),
    )


def _even(facts: LayerFacts, even: EvenFacts) -> EvenRun:
    backward: float | UnsetType = UNSET
    more: float | UnsetType = UNSET
    if facts.backward is not None and even.backward is not None:
        backward = to_seconds(even.backward)
        more = to_seconds(facts.backward.step - even.backward)
    most_rows = int(facts.load.rank_rows.max(initial=0))
    return EvenRun(
        most_rank_rows=even.most_rank_rows,
        wire_bytes=even.wire_bytes,
        forward_seconds=to_seconds(even.forward),
        backward_seconds=backward,
        more_rank_rows=most_rows - even.most_rank_rows,
        more_wire_bytes=facts.forward.dispatch.total - even.wire_bytes,
        more_forward_seconds=to_seconds(facts.forward.step - even.forward),
        more_backward_seconds=more,
    )
