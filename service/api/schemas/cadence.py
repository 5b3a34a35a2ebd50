"""Wire types of the stage cadence."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.api.schemas.cost_sources import CostSourcesOut, cost_sources_terms
from service.api.schemas.loads import LoadsOut, loads_terms
from service.api.schemas.ranges import SecondsRanges, mean_seconds, seconds_ranges
from service.api.schemas.stage_weights import StageWeightsOut, stage_weights_terms
from service.core.amounts import Amount, combine
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.plan import ResolvedPlan, ResolvedStage
from service.core.schedules.cadence import Cadence as CoreCadence
from service.core.schedules.cadence import PhaseCadence, StageCadence
from service.core.schedules.no_steady import NoSteady
from service.core.units import exact_seconds, to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "Cadence",
    "CadenceAnswer",
    "CadenceStage",
    "CycleStep",
    "SteadyPhase",
    "cadence_terms",
]


class CadenceStage(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one microbatch costs one stage; the mean over them where they differ."""

    stage: Annotated[int, Meta(ge=0)]
    rank: Annotated[int, Meta(ge=0, description="Pipeline rank that runs the stage.")]
    second_rank: Annotated[
        int | msgspec.UnsetType,
        Meta(description="Where the stage runs in the second direction of a two-way schedule."),
    ] = msgspec.UNSET
    layers: Annotated[
        list[str] | msgspec.UnsetType, Meta(description="Absent when the plan gives costs itself.")
    ] = msgspec.UNSET
    forward_seconds: Annotated[float, Meta(ge=0)]
    backward_seconds: Annotated[float, Meta(ge=0)]
    backward_input_seconds: Annotated[
        float | msgspec.UnsetType, Meta(description="Of the backward; absent when not known.")
    ] = msgspec.UNSET
    backward_weight_seconds: Annotated[
        float | msgspec.UnsetType, Meta(description="Of the backward; absent when not known.")
    ] = msgspec.UNSET
    pair_seconds: Annotated[
        float | msgspec.UnsetType,
        Meta(
            description="The forward fused with the backward of another stage; absent where "
            "nobody says."
        ),
    ] = msgspec.UNSET
    recompute_seconds: Annotated[float, Meta(ge=0)]
    transfer_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "Predicted time of what this stage sends forward for one microbatch (the longest "
                "when it sends to several stages). Waiting, not work: no part of work_seconds."
            ),
        ),
    ]
    work_seconds: Annotated[float, Meta(ge=0, description="Forward, backward and recompute.")]
    provenance: Annotated[
        str,
        Meta(
            description="Where the times came from: given, measured, interpolated, extrapolated or "
            "assumed. Of a stage whose layers differ, the least sure of them (in this order)."
        ),
    ]
    cost_sources: Annotated[
        CostSourcesOut | msgspec.UnsetType,
        Meta(description="What a sum over layers rests on; absent when the plan gives costs."),
    ] = msgspec.UNSET
    seconds_ranges: SecondsRanges = msgspec.UNSET
    weights: Annotated[
        StageWeightsOut | msgspec.UnsetType,
        Meta(description="What the stage holds; absent when the plan gives costs itself."),
    ] = msgspec.UNSET


class CycleStep(msgspec.Struct, kw_only=True, frozen=True):
    """One operation of a cycle, and the transfer that leads to the next one (0 when local)."""

    kind: Annotated[
        str,
        Meta(
            description="forward, backward, backward_input, backward_weight, recompute, or "
            "forward_backward for a fused pair"
        ),
    ]
    stage: Annotated[int, Meta(ge=0, description="Of a fused pair the stage of its forward.")]
    seconds: Annotated[float, Meta(ge=0)]
    transfer_seconds: Annotated[float, Meta(ge=0)]
    microbatches: Annotated[
        int, Meta(description="How many microbatches later the next step's operation is.")
    ]


class SteadyPhase(msgspec.Struct, kw_only=True, frozen=True):
    """The pace of one phase of the iteration, and the cycle of waits that sets it."""

    kinds: Annotated[list[str], Meta(description="Kinds of operations that run in this phase.")]
    seconds_per_microbatch: Annotated[float, Meta(ge=0)]
    cycle: Annotated[
        list[CycleStep],
        Meta(
            description="No cycle of waits is slower. Empty in `link` mode, where queues have none."
        ),
    ]


class Cadence(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How often a microbatch can leave the pipeline, and what holds it back."""

    stages: list[CadenceStage]
    slowest_stage: Annotated[
        int, Meta(ge=0, description="The stage with the most work; the first of equals.")
    ]
    bound_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Lower bound of the cadence: the work of the busiest rank, on average over "
            "the directions of a two-way schedule, exchanges of experts at nominal bandwidths; in "
            "`link` mode that of the busiest link, at its nominal bandwidth, where it has more.",
        ),
    ]
    bound_set_by: Annotated[str, Meta(description="The rank or the link.", examples=["rank 2"])]
    steady_seconds: Annotated[
        float | msgspec.UnsetType,
        Meta(
            description=(
                "Predicted seconds that each further microbatch adds once the pipeline is full: "
                "the maximum cycle mean of the order, transfers included, and in `link` mode that "
                "of a long simulated iteration once it repeats itself. Phases that follow one "
                "another add up. Absent where no_steady_reason says why."
            ),
        ),
    ] = msgspec.UNSET
    no_steady_reason: Annotated[
        NoSteady | msgspec.UnsetType,
        Meta(description="Why there is no steady_seconds: the first of these that holds."),
    ] = msgspec.UNSET
    steady_phases: Annotated[
        list[SteadyPhase], Meta(description="What sets steady_seconds, phase by phase.")
    ]
    loads: Annotated[
        LoadsOut | msgspec.UnsetType,
        Meta(
            description="By the load rule of the plan's partition, apart from the simulation; "
            "absent without one."
        ),
    ] = msgspec.UNSET


CadenceAnswer = answer_type("CadenceAnswer", Cadence)


def cadence_terms(simulated: SimulatedPlan, cadence: CoreCadence) -> Cadence:
    """The wire form of a plan's cadence."""
    resolved = simulated.resolved
    sends: list[Amount] = [0] * len(resolved.stages)
    for boundary in resolved.boundaries:
        sends[boundary.source] = combine(max, sends[boundary.source], boundary.forward_picoseconds)
    stages = [
        _stage(stage, priced, resolved, send)
        for stage, priced, send in zip(cadence.stages, resolved.stages, sends, strict=True)
    ]
    steady = cadence.steady
    return Cadence(
        stages=stages,
        slowest_stage=cadence.slowest_stage,
        bound_seconds=exact_seconds(cadence.bound),
        bound_set_by=cadence.bound_by,
        steady_seconds=msgspec.UNSET if steady is None else exact_seconds(steady.per_microbatch),
        no_steady_reason=or_unset(cadence.no_steady),
        steady_phases=[] if steady is None else [_phase(phase) for phase in steady.phases],
        loads=loads_terms(resolved),
    )


def _stage(
    stage: StageCadence, priced: ResolvedStage, resolved: ResolvedPlan, send: Amount
) -> CadenceStage:
    sizes = resolved.sizes
    known = {
        "backward_input_seconds": priced.backward_input_picoseconds,
        "backward_weight_seconds": priced.backward_weight_picoseconds,
        "pair_seconds": priced.pair_picoseconds,
        "transfer_seconds": send,
    }
    spreads = {
        name: None if amount is None else sizes.spread(amount) for name, amount in known.items()
    }
    run = {
        "forward_seconds": priced.forward_picoseconds if stage.forward else 0,
        "backward_seconds": priced.backward_picoseconds if stage.backward else 0,
        "recompute_seconds": priced.recompute_picoseconds if stage.recompute else 0,
    }
    return CadenceStage(
        stage=stage.stage,
        rank=stage.rank,
        second_rank=stage.ranks[1] if len(stage.ranks) > 1 else msgspec.UNSET,
        layers=list(priced.layers) if priced.layers else msgspec.UNSET,
        forward_seconds=exact_seconds(stage.forward),
        backward_seconds=exact_seconds(stage.backward),
        backward_input_seconds=mean_seconds(spreads["backward_input_seconds"]),
        backward_weight_seconds=mean_seconds(spreads["backward_weight_seconds"]),
        pair_seconds=mean_seconds(spreads["pair_seconds"]),
        recompute_seconds=exact_seconds(stage.recompute),
        transfer_seconds=exact_seconds(sizes.spread(send).mean),
        work_seconds=exact_seconds(stage.work),
        provenance=priced.provenance.value,
        cost_sources=msgspec.UNSET
        if priced.sources is None
        else cost_sources_terms(priced.sources, sizes),
        seconds_ranges=seconds_ranges(
            **spreads,
            **{name: sizes.spread(amount) for name, amount in run.items()},
            work_seconds=stage.work_spread,
        ),
        weights=stage_weights_terms(resolved, stage.stage),
    )


def _phase(phase: PhaseCadence) -> SteadyPhase:
    return SteadyPhase(
        kinds=[kind.name.lower() for kind in phase.kinds],
        seconds_per_microbatch=exact_seconds(phase.per_microbatch),
        cycle=[
            CycleStep(
                kind=step.kind.name.lower(),
                stage=step.stage,
                seconds=to_seconds(step.duration),
                transfer_seconds=to_seconds(step.latency),
                microbatches=step.microbatches,
            )
            for step in phase.cycle
        ],
    )
