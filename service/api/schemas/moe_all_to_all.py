"""Wire types of what the experts of a plan exchange, compute and wait for."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.answers import answer_type
from service.api.schemas.exchange_links import SharedLinksOut
from service.api.schemas.expert_layers import ExpertLayerOut, expert_run
from service.api.schemas.expert_placements import (
    CapacityPoint,
    ExpertAdviceOut,
    advice_out,
    capacity_points,
)
from service.api.schemas.requests import PlanRequest
from service.core.estimates.experts.advice import ExpertAdvice
from service.core.estimates.experts.layers import ExpertReport
from service.core.estimates.experts.repricing import ExpertTotals
from service.core.estimates.experts.sweep import FactorPoint
from service.core.moe.assignments import RoutingLevel
from service.core.moe.imbalance import tails
from service.core.plans.moe.results import Pass, StageExperts
from service.core.plans.plan import ResolvedPlan, Statement
from service.core.topology.flows.study import flow_study
from service.core.units import to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "AdviceAsked",
    "EvenTotals",
    "ExpertGroupOut",
    "ExpertStageOut",
    "MoeAllToAll",
    "MoeAllToAllAnswer",
    "MoeAllToAllRequest",
    "OverLayers",
    "RowTails",
    "StepTails",
    "lists_left_out",
    "moe_all_to_all_terms",
]

MAX_FACTORS = 32
MAX_SLOTS = 16_384
# Layers x different runs that are listed, and numbers in all lists by rank, and in all matrices.
MAX_RUNS = 256
MAX_BY_RANK = 16_384
MAX_ENTRIES = 262_144

_Seconds = Annotated[float, Meta(ge=0)]


class AdviceAsked(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Where experts would better stand."""

    extra_slots: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_SLOTS,
            description="Replicas that may be added in a layer, over all ranks of a group",
            examples=[4],
        ),
    ] = 0


class MoeAllToAllRequest(PlanRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan with `moe`, and what else is asked about its experts."""

    capacity_factors: (
        Annotated[
            list[Annotated[float, Meta(gt=0, le=1e6)]],
            Meta(
                min_length=1,
                max_length=MAX_FACTORS,
                description="Factors to price the layers with, in place of the plan's",
                examples=[[1.0, 1.25, 1.5]],
            ),
        ]
        | UnsetType
    ) = UNSET
    advice: (
        Annotated[AdviceAsked, Meta(description="Ask for better placements", examples=[{}])]
        | UnsetType
    ) = UNSET
    matrices: Annotated[
        bool, Meta(description="Whether to list the bytes between each pair of ranks")
    ] = False


class RowTails(msgspec.Struct, kw_only=True, frozen=True):
    """Percentiles of rows by nearest rank, so each is a number that occurs."""

    p50: Annotated[int, Meta(ge=0, description="Rows that half of all do not exceed.")]
    p90: Annotated[int, Meta(ge=0, description="Rows that 90 % do not exceed.")]
    p99: Annotated[int, Meta(ge=0, description="Rows that 99 % do not exceed.")]
    most: Annotated[int, Meta(ge=0, description="The most rows of any.")]


class StepTails(msgspec.Struct, kw_only=True, frozen=True):
    """Percentiles of times by nearest rank."""

    p50_seconds: _Seconds
    p90_seconds: _Seconds
    p99_seconds: _Seconds
    most_seconds: _Seconds


class ExpertGroupOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The ranks that share the experts of a stage; all groups of a stage exchange at once."""

    ranks: Annotated[int, Meta(ge=1, description="Of each group.")]
    groups: Annotated[int, Meta(ge=1, description="Of each stage.")]
    shown: Annotated[
        int,
        Meta(ge=0, description="The one that all is said of: its layers take longest in all."),
    ]


class ExpertStageOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What the layers with experts add to the time of a stage, for one microbatch."""

    stage: Annotated[int, Meta(ge=0)]
    layers: Annotated[int, Meta(ge=0, description="How many of its layers have experts.")]
    forward_seconds: Annotated[_Seconds, Meta(description="The mean where microbatches differ.")]
    backward_seconds: _Seconds
    recompute_seconds: _Seconds
    contained_seconds: Annotated[
        _Seconds,
        Meta(description="Of all three, what the given costs had in them and was taken off."),
    ]


class OverLayers(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Over all different runs of all layers, each once, and totals of an iteration."""

    rank_rows: Annotated[RowTails, Meta(description="Rows of a rank, over all ranks too.")]
    expert_rows: Annotated[RowTails, Meta(description="Assignments of an expert.")]
    steps: Annotated[StepTails, Meta(description="Forward and backward of a microbatch.")]
    dropped_fraction: Annotated[float, Meta(ge=0, le=1, description="Of the assignments.")]
    padded_fraction: Annotated[float, Meta(ge=0, le=1, description="Of the rows computed.")]
    expert_seconds: Annotated[
        _Seconds,
        Meta(description="All steps of an iteration, one after the other, recomputation too."),
    ]


class EvenTotals(msgspec.Struct, kw_only=True, frozen=True):
    """All layers of an iteration with tokens that choose evenly, and the plan's less that."""

    most_rank_rows: Annotated[int, Meta(ge=0, description="Of any rank in any layer.")]
    expert_seconds: _Seconds
    more_rank_rows: Annotated[int, Meta(description="Of the busiest rank of any layer.")]
    more_expert_seconds: float


class MoeAllToAll(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What the experts of a plan send, compute and wait for, layer by layer."""

    routing_level: Annotated[
        RoutingLevel, Meta(description="The least that is known of any layer's routing.")
    ]
    expert_group: ExpertGroupOut
    stages: list[ExpertStageOut]
    over_layers: OverLayers
    even: Annotated[
        EvenTotals | UnsetType, Meta(description="Absent where the plan's tokens choose evenly.")
    ] = UNSET
    layers: list[ExpertLayerOut]
    shared_links: Annotated[
        SharedLinksOut,
        Meta(
            description="Links that transfers and exchanges, or exchanges of several stages, use "
            "both; none without a topology."
        ),
    ]
    capacity_factors: Annotated[
        list[CapacityPoint] | UnsetType, Meta(description="Where they were asked for.")
    ] = UNSET
    advice: Annotated[ExpertAdviceOut | UnsetType, Meta(description="Where it was asked for.")] = (
        UNSET
    )


MoeAllToAllAnswer = answer_type("MoeAllToAllAnswer", MoeAllToAll)

_LEVELS = tuple(RoutingLevel)


def moe_all_to_all_terms(
    resolved: ResolvedPlan,
    report: ExpertReport,
    totals: ExpertTotals,
    even: ExpertTotals | None,
    *,
    sweep: tuple[FactorPoint, ...] | None = None,
    advice: ExpertAdvice | None = None,
    shared: SharedLinksOut,
    matrices: bool = False,
) -> MoeAllToAll:
    """The wire form of a report on the experts of a plan."""
    moe = report.moe
    groups = report.groups(moe.layers[0].layer.stage)
    return MoeAllToAll(
        routing_level=max((run.load.level for run in report.runs), key=_LEVELS.index),
        expert_group=ExpertGroupOut(ranks=groups.width, groups=groups.count, shown=moe.group),
        stages=[_stage(resolved, one) for one in moe.stages],
        over_layers=_over_layers(report, totals),
        even=UNSET
        if even is None
        else EvenTotals(
            most_rank_rows=even.most_rank_rows,
            expert_seconds=to_seconds(even.picoseconds),
            more_rank_rows=totals.most_rank_rows - even.most_rank_rows,
            more_expert_seconds=to_seconds(totals.picoseconds - even.picoseconds),
        ),
        layers=_layers(resolved, report, matrices=matrices),
        shared_links=shared,
        capacity_factors=UNSET if sweep is None else capacity_points(sweep),
        advice=UNSET if advice is None else advice_out(advice),
    )


def lists_left_out(report: ExpertReport, *, matrices: bool) -> tuple[Statement, ...]:
    """What of the report is too long for an answer."""
    said = []
    runs = len(report.runs)
    if runs > MAX_RUNS:
        detail = f"of {runs} different runs of layers the first {MAX_RUNS} are listed"
        said.append(Statement("expert_runs_listed", detail))
    if not _listed_by_rank(report):
        detail = f"bytes and rows by rank, which are listed up to {MAX_BY_RANK} in all"
        said.append(Statement("experts_by_rank", detail))
    if matrices and _with_matrices(report) < min(runs, MAX_RUNS):
        detail = f"matrices of later runs: at most {MAX_ENTRIES} entries are listed in all"
        said.append(Statement("expert_matrices", detail))
    return tuple(said)


def _listed_by_rank(report: ExpertReport) -> bool:
    width = report.groups(report.moe.layers[0].layer.stage).width
    return width * min(len(report.runs), MAX_RUNS) <= MAX_BY_RANK


def _with_matrices(report: ExpertReport) -> int:
    """How many of the runs have theirs listed."""
    entries = 0
    for number, run in enumerate(report.runs):
        entries += sum(stage.between.size for stage in run.traffic.stages)
        if entries > MAX_ENTRIES:
            return number
    return len(report.runs)


def _layers(
    resolved: ResolvedPlan, report: ExpertReport, *, matrices: bool
) -> list[ExpertLayerOut]:
    network = None if resolved.cluster is None else flow_study(resolved.cluster).network
    by_rank = _listed_by_rank(report)
    with_matrices = _with_matrices(report) if matrices else 0
    found, listed = [], 0
    for runs in report.layers:
        shown = runs[: max(0, MAX_RUNS - listed)]
        if not shown:
            break
        layer = shown[0].layer
        found.append(
            ExpertLayerOut(
                layer=layer.number,
                stage=layer.stage,
                name=or_unset(layer.name),
                experts=layer.experts,
                top_k=layer.top_k,
                routing_layer=or_unset(layer.routing_layer),
                recomputed=shown[0].repeats,
                runs=[
                    expert_run(
                        run,
                        report.groups(layer.stage),
                        report.moe.group,
                        network,
                        by_rank=by_rank,
                        matrices=listed + number < with_matrices,
                    )
                    for number, run in enumerate(shown)
                ],
            )
        )
        listed += len(shown)
    return found


def _stage(resolved: ResolvedPlan, experts: StageExperts) -> ExpertStageOut:
    def seconds(way: Pass, *, contained: bool = False) -> float:
        amounts = experts.contained if contained else experts.takes
        total = resolved.sizes.spread(amounts[way], 0, 1).total
        return total / resolved.sizes.microbatches / 1e12

    ways = (Pass.FORWARD, Pass.BACKWARD, Pass.RECOMPUTE)
    return ExpertStageOut(
        stage=experts.stage,
        layers=len(experts.layers),
        forward_seconds=seconds(Pass.FORWARD),
        backward_seconds=seconds(Pass.BACKWARD),
        recompute_seconds=seconds(Pass.RECOMPUTE),
        contained_seconds=sum(seconds(way, contained=True) for way in ways),
    )


def _over_layers(report: ExpertReport, totals: ExpertTotals) -> OverLayers:
    runs = report.runs
    steps = tails([run.picoseconds for run in runs])
    return OverLayers(
        rank_rows=_row_tails([run.load.rank_rows for run in runs]),
        expert_rows=_row_tails([run.load.expert_rows for run in runs]),
        steps=StepTails(
            p50_seconds=to_seconds(steps.p50),
            p90_seconds=to_seconds(steps.p90),
            p99_seconds=to_seconds(steps.p99),
            most_seconds=to_seconds(steps.most),
        ),
        dropped_fraction=totals.dropped_fraction,
        padded_fraction=totals.padded_fraction,
        expert_seconds=to_seconds(totals.picoseconds),
    )


def _row_tails(rows: Sequence[npt.NDArray[np.int64]]) -> RowTails:
    found = tails(np.concatenate(rows))
    return RowTails(p50=found.p50, p90=found.p90, p99=found.p99, most=found.most)
