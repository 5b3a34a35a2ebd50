"""What a resolved plan says of itself: what it assumed, and what it leaves out."""

from service.core.amounts import SizeClasses
from service.core.models.graph import Model
from service.core.plans import memory_statements, statements
from service.core.plans.assumed_activations import recomputes_by_layer
from service.core.plans.boundaries import PathCounts
from service.core.plans.exchange_statements import (
    COLLECTIVES_BESIDE_EXCHANGES,
    EXCHANGE_CONTENTION,
    EXCHANGE_QUEUES,
    exchanges_on_paths,
)
from service.core.plans.given import FOR_EVERY_LENGTH
from service.core.plans.plan import (
    Boundary,
    Plan,
    ResolvedStage,
    Statement,
    TransferOrigin,
)
from service.core.plans.recompute import recomputes
from service.core.plans.schedule import has_backward, pair_mode, plan_family
from service.core.plans.workload import Batch, lengths_differ
from service.core.profiles.measurement import LayerCost
from service.core.profiles.profile import Profile
from service.core.schedules.program import PairMode
from service.core.schedules.transfers import TransferMode

__all__ = ["assumptions_of", "left_out_of"]


def assumptions_of(
    plan: Plan,
    mode: TransferMode,
    sizes: SizeClasses,
    batch: Batch,
    model: Model | None,
    profile: Profile | None,
    stages: tuple[ResolvedStage, ...],
    boundaries: tuple[Boundary, ...],
    counts: PathCounts,
    idle: int,
) -> tuple[Statement, ...]:
    """What was taken for granted of a plan on the way to its numbers."""
    degrees = plan.degrees
    said: list[Statement] = []
    if batch.held_fixed == "microbatch_size":
        said.append(
            statements.batch_follows(
                "microbatch_size", "global_batch_size", batch.global_batch_size or 0
            )
        )
    elif batch.held_fixed is not None:
        said.append(
            statements.batch_follows(
                "global_batch_size", "microbatch_size", batch.microbatch_size or 0
            )
        )
    if sizes.count > 1:
        said.append(statements.microbatches_differ(sizes.count, routed=plan.moe is not None))
    if lengths_differ(plan):
        once = [
            name
            for name in FOR_EVERY_LENGTH
            if any(isinstance(getattr(stage, name), int | float) for stage in plan.stages or ())
        ]
        if once:
            said.append(statements.one_for_all_lengths(once))
    if not has_backward(plan):
        said.append(statements.BACKWARD_IGNORED)
        recomputed = any(stage.recompute_seconds for stage in plan.stages or ())
        if recomputed or recomputes(plan):
            said.append(memory_statements.RECOMPUTE_IGNORED)
    if degrees.world_size > degrees.pipeline:
        said.append(statements.UNIFORM_RANKS)
    if model is not None:
        if degrees.context > 1 and batch.rank_sequence_length is not None:
            said.append(statements.context_costs(batch.rank_sequence_length))
        if None in model.producers:
            said.append(statements.LOADS_AT_EACH_STAGE)
        if profile is not None:
            unfitting = profile.unfitting(layer.name for layer in model.layers)
            if unfitting:
                said.append(statements.unfitting_patterns(unfitting))
    said += _schedule_assumptions(plan, mode, sizes, stages, boundaries)
    said += _transfer_assumptions(plan, _once(boundaries), counts)
    said += _mode_assumptions(mode, _once(boundaries), exchanges=exchanges_on_paths(plan))
    if idle:
        said.append(statements.idle_devices(idle))
    return tuple(said)


def _once(boundaries: tuple[Boundary, ...]) -> tuple[Boundary, ...]:
    """Boundaries that are crossed, each counted in one direction of the schedule."""
    return tuple(
        boundary
        for boundary in boundaries
        if boundary.origin is not TransferOrigin.LOCAL and boundary.direction == 0
    )


def _schedule_assumptions(
    plan: Plan,
    mode: TransferMode,
    sizes: SizeClasses,
    stages: tuple[ResolvedStage, ...],
    boundaries: tuple[Boundary, ...],
) -> list[Statement]:
    family = plan_family(plan)
    said = []
    if family.update is not None:
        said.append(statements.DRAINED_RUN)
    if family.directions > 1:
        said.append(statements.TWO_COPIES)
    if family.takes_memory_limit:
        limit = plan.schedule.memory_limit_activations or plan.degrees.pipeline
        sized = all(stage.activation_bytes is not None for stage in stages)
        alike = sizes.count == 1
        said.append(statements.order_for_times(limit, bytes_known=sized, alike=alike, mode=mode))
    any_chunks = family.chunks is None and not family.takes_order
    if any_chunks and plan.schedule.chunks_per_rank == 1:
        longer = family.name == "interleaved_1f1b" and plan.degrees.pipeline > 1
        said.append(statements.one_chunk(more_than_1f1b=longer))
    if family.chunks is not None and family.chunks > 1:
        ranks = plan.degrees.pipeline
        said.append(statements.chunks_on_rank(family.name, family.chunks, len(stages), ranks))
    if family.gains_in_span and plan.degrees.pipeline > 1:
        said.append(statements.SPAN_GAINS)
    again = sum(bool(stage.recomputed_bytes) for stage in stages)
    if again:
        by_layer = recomputes_by_layer(plan)
        said.append(
            memory_statements.recomputed_by_layer(again)
            if by_layer
            else memory_statements.recomputed_at_once(again)
        )
    timed = any(stage.pair_seconds is not None for stage in plan.stages or ())
    if family.has_pairs and pair_mode(plan) is PairMode.FUSED and not timed:
        said.append(statements.FUSED_PAIRS_SUMMED)
    ends = sum(not boundary.returns and boundary.direction == 0 for boundary in boundaries)
    if ends and has_backward(plan):
        said.append(statements.no_gradient(ends))
    local = sum(boundary.origin is TransferOrigin.LOCAL for boundary in boundaries)
    if local:
        said.append(statements.local_boundaries(local))
    return said


def _transfer_assumptions(
    plan: Plan, boundaries: tuple[Boundary, ...], counts: PathCounts
) -> list[Statement]:
    said = []
    for bytes_known in (True, False):
        zero = sum(
            boundary.origin is TransferOrigin.ASSUMED_ZERO
            and (boundary.forward_bytes is not None) is bytes_known
            for boundary in boundaries
        )
        if zero:
            said.append(statements.zero_transfers(zero, bytes_known=bytes_known))
    given = sum(boundary.origin is TransferOrigin.GIVEN for boundary in boundaries)
    if given:
        said.append(statements.given_transfers(given))
    defaulted = sum(
        stage.boundary_bytes is not None and stage.backward_boundary_bytes is None
        for stage in plan.stages or ()
    )
    if defaulted and has_backward(plan):
        said.append(statements.backward_bytes_defaulted(defaulted))
    if plan.topology is not None and boundaries:
        said.append(statements.PINNED_PATHS)
    if counts.without_latency:
        said.append(statements.latency_unknown(counts.without_latency))
    if counts.without_effective:
        said.append(statements.nominal_bandwidth(counts.without_effective))
    if counts.with_assumed_bandwidth:
        said.append(statements.assumed_bandwidth(counts.with_assumed_bandwidth))
    if counts.given_below_assumed_bound:
        said.append(statements.given_below_assumed_bound(counts.given_below_assumed_bound))
    return said


def _mode_assumptions(
    mode: TransferMode, boundaries: tuple[Boundary, ...], *, exchanges: bool
) -> list[Statement]:
    if not boundaries:
        return []
    if mode is TransferMode.BLOCKING:
        return [statements.BLOCKING_SENDS]
    if mode is TransferMode.LATENCY:
        return []
    said = [statements.LINK_QUEUES, statements.SLACK_KEEPS_QUEUES]
    if exchanges:
        said.insert(1, EXCHANGE_QUEUES)
    apart = sum(boundary.origin is not TransferOrigin.PATH for boundary in boundaries)
    if apart:
        said.append(statements.transfers_without_links(apart))
    return said


def left_out_of(
    plan: Plan,
    mode: TransferMode,
    batch: Batch,
    stages: tuple[ResolvedStage, ...],
    boundaries: tuple[Boundary, ...],
    costs: list[list[LayerCost]] | None,
) -> tuple[Statement, ...]:
    """What the numbers of a plan leave out, whatever is asked of them."""
    degrees = plan.degrees
    boundaries = _once(boundaries)
    left_out = [
        statements.LOADER_TIME,
        memory_statements.MEMORY,
        memory_statements.ACTIVATION_BUFFERS,
    ]
    if has_backward(plan):
        left_out.append(statements.OPTIMIZER_STEP)
        if plan_family(plan).update is not None:
            left_out.append(memory_statements.WEIGHT_STASHES)
        if plan_family(plan).directions > 1:
            left_out.append(statements.TWO_COPIES_REDUCTION)
        if degrees.data > 1:
            left_out.append(statements.DATA_PARALLEL_REDUCTION)
        unknown = sum(stage.recomputed_bytes is None for stage in stages)
        if unknown:
            left_out.append(memory_statements.recompute_transient(unknown))
    measured = costs is not None and all(
        cost.communication_known for of_class in costs for cost in of_class
    )
    if degrees.tensor > 1 and not measured:
        left_out.append(statements.TENSOR_COMMUNICATION)
    if degrees.context > 1:
        left_out.append(statements.CONTEXT_COMMUNICATION)
    if degrees.expert * degrees.expert_tensor > 1 and plan.moe is None:
        left_out.append(statements.EXPERT_COMMUNICATION)
    if plan.training is not None:
        left_out.append(statements.TRAINING)
    if any(stage.parameter_count is not None for stage in plan.stages or ()):
        left_out.append(statements.PARAMETER_COUNTS)
    if boundaries and mode is not TransferMode.LINK:
        left_out.append(statements.CONTENTION)
    elif boundaries and degrees.world_size > degrees.pipeline:
        exchanges = exchanges_on_paths(plan)
        left_out.append(
            COLLECTIVES_BESIDE_EXCHANGES if exchanges else statements.COLLECTIVES_ON_LINKS
        )
    if boundaries and mode is not TransferMode.LINK and exchanges_on_paths(plan):
        left_out.append(EXCHANGE_CONTENTION)
    if plan.topology is None:
        left_out.append(statements.PHYSICAL_PATHS)
    if plan.contract.states_routing and plan.moe is None:
        left_out.append(statements.EXPERT_ROUTING)
    unknown_bytes = sum(boundary.forward_bytes is None for boundary in boundaries)
    if unknown_bytes:
        left_out.append(statements.boundary_bytes_unknown(unknown_bytes))
    unknown_activations = sum(stage.activation_bytes is None for stage in stages)
    if unknown_activations:
        left_out.append(memory_statements.activation_bytes_unknown(unknown_activations))
    missing = [
        name
        for name, value in (
            ("microbatch_size or global_batch_size", batch.microbatch_size),
            ("sequence_length", batch.sequence_length),
        )
        if value is None
    ]
    if missing:
        left_out.append(statements.tokens_unknown(missing))
    return tuple(left_out)
