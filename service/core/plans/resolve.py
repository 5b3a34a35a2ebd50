"""From a plan to numbers: stages, boundaries, ranks on devices, and what was assumed on the way."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from service.core.amounts import SizeClasses, at_class
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.models.cuts import cut_model
from service.core.models.graph import Model
from service.core.models.sizes import BatchShape
from service.core.plans import statements
from service.core.plans.boundaries import PathCounts, price
from service.core.plans.check import check_form
from service.core.plans.costs import given_stages, layer_costs, measured_stages
from service.core.plans.devices import expand_devices
from service.core.plans.partition import assign_layers, check_partition
from service.core.plans.payloads import Payload, cut_payloads, given_payloads
from service.core.plans.placement import check_order, layout, place_ranks
from service.core.plans.plan import (
    Boundary,
    Plan,
    ResolvedPlan,
    ResolvedStage,
    Statement,
    TransferOrigin,
)
from service.core.plans.schedule import (
    check_schedule,
    has_backward,
    pair_mode,
    plan_family,
    stage_count,
    stage_ranks,
)
from service.core.plans.workload import Batch, resolve_batch, size_classes
from service.core.profiles.profile import LayerCost, Point, Profile, Recompute
from service.core.schedules.program import PairMode
from service.core.topology.cluster import Cluster

__all__ = ["resolve"]

# Costs of layers that are looked up for one plan, each at every sequence length.
MAX_LOOKUPS = 200_000

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class _Collector:
    """Runs the parts of a resolution, keeping the faults of each."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults

    def attempt(
        self,
        part: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result | None:
        """The result of a part, or None when it found faults."""
        try:
            return part(*arguments, **named)
        except InvalidInput as invalid:
            self.faults += invalid.faults
            return None


def resolve(
    plan: Plan,
    *,
    cluster: Cluster | None = None,
    model: Model | None = None,
    profile: Profile | None = None,
) -> ResolvedPlan:
    """Price each stage and boundary of a plan, and put its ranks on devices.

    `cluster`, `model` and `profile` are what the plan's references stand for: each is given
    exactly when the plan names one (`ValueError` otherwise).

    Raises `InvalidInput` with every fault that can be told; paths point into a plan document.
    A part whose own input is at fault is not looked at further.
    """
    _require_references(plan, cluster, model, profile)
    of_schedule = check_schedule(plan)
    collector = _Collector([*check_form(plan), *of_schedule])
    attempt = collector.attempt

    sizes = size_classes(plan)
    batch = attempt(resolve_batch, plan, sizes)
    ranks, placement, idle = None, None, 0
    devices = None if cluster is None else attempt(expand_devices, cluster, plan.placement.devices)
    order_faults = check_order(plan.placement, plan.degrees)
    collector.faults += order_faults
    if not order_faults:
        ranks = layout(plan.placement, plan.degrees)
        if cluster is None or devices is not None:
            placement = attempt(place_ranks, ranks, devices)
    if devices is not None and plan.placement.devices is not None:
        idle = max(0, len(devices) - plan.degrees.world_size)

    stages: tuple[ResolvedStage, ...] | None = None
    payloads: list[Payload] | None = None
    costs: list[list[LayerCost]] | None = None
    written = plan.schedule.order is not None
    if of_schedule and written:
        pass  # without a readable order nobody knows how many stages there are
    elif plan.stages is not None:
        stages = attempt(given_stages, plan, sizes)
        if stages is not None and batch is not None:
            payloads = given_payloads(plan.stages, sizes, backward=has_backward(plan))
    elif model is not None:
        if profile is not None and batch is not None:
            costs = attempt(_layer_costs, plan, model, profile, batch, sizes)
        stage_of_layer = attempt(_assign, plan, model)
        if stage_of_layer is not None and costs is not None:
            stages = measured_stages(plan, model, stage_of_layer, costs)
        if stage_of_layer is not None and batch is not None:
            payloads = attempt(_cut, plan, model, stage_of_layer, batch, sizes)

    priced = None
    homes = stage_ranks(plan)
    if payloads is not None and ranks is not None and placement is not None and homes is not None:
        priced = attempt(price, payloads, ranks, placement, homes, cluster, sizes)
    if collector.faults:
        raise InvalidInput(dict.fromkeys(collector.faults))
    if batch is None or stages is None or placement is None or priced is None:
        raise RuntimeError("a plan without faults was not resolved")
    boundaries, counts = priced
    return ResolvedPlan(
        plan=plan,
        sizes=sizes,
        stages=stages,
        boundaries=boundaries,
        placement=placement,
        microbatch_size=batch.microbatch_size,
        global_batch_size=batch.global_batch_size,
        held_fixed=batch.held_fixed,
        sequence_length=batch.sequence_length,
        assumptions=_assumptions(plan, sizes, batch, model, stages, boundaries, counts, idle),
        not_represented=_not_represented(plan, batch, stages, _once(boundaries), costs),
    )


def _require_references(
    plan: Plan, cluster: Cluster | None, model: Model | None, profile: Profile | None
) -> None:
    for name, reference, document in (
        ("cluster", plan.topology, cluster),
        ("model", plan.model, model),
        ("profile", plan.profile, profile),
    ):
        if (reference is None) != (document is None):
            raise ValueError(f"{name} is given exactly when the plan names one: {reference!r}")


def _layer_costs(
    plan: Plan, model: Model, profile: Profile, batch: Batch, sizes: SizeClasses
) -> list[list[LayerCost]]:
    """Of each layer for each size class; every fault of every class together."""
    if len(model.layers) * sizes.count > MAX_LOOKUPS:
        detail = (
            f"{sizes.count} sequence lengths of {len(model.layers)} layers; at most {MAX_LOOKUPS} "
            "costs are looked up: use fewer different lengths"
        )
        path = ("workload", "microbatch_sequence_lengths")
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, path, detail)])
    faults: list[Fault] = []
    costs = []
    for number in range(sizes.count):
        try:
            costs.append(layer_costs(plan, model, profile, _point(plan, batch, number)))
        except InvalidInput as invalid:
            faults += invalid.faults
    if faults:
        raise InvalidInput(faults)
    return costs


def _point(plan: Plan, batch: Batch, number: int) -> Point:
    if batch.microbatch_size is None:
        raise ValueError("a plan with a profile has a microbatch size")
    length = batch.rank_sequence_length
    return Point(
        microbatch_size=batch.microbatch_size,
        sequence_length=None if length is None else at_class(length, number),
        tensor_parallel=plan.degrees.tensor,
        recompute=Recompute(plan.recompute) if has_backward(plan) else Recompute.NONE,
    )


def _assign(plan: Plan, model: Model) -> tuple[int, ...] | None:
    stages = stage_count(plan)
    if plan.partition is None or check_partition(plan.partition, stages):
        return None  # told by check_form
    return assign_layers(plan.partition, model, stages)


def _cut(
    plan: Plan, model: Model, stage_of_layer: tuple[int, ...], batch: Batch, sizes: SizeClasses
) -> list[Payload] | None:
    if plan.partition is None or batch.microbatch_size is None:
        return None
    length = batch.sequence_length
    shapes = [
        BatchShape(
            microbatch_size=batch.microbatch_size,
            sequence_length=None if length is None else at_class(length, number),
            lengths_differ=sizes.count > 1,
            context=plan.degrees.context,
            tensor=plan.degrees.tensor,
            sequence_parallel=plan.degrees.sequence_parallel,
        )
        for number in range(sizes.count)
    ]
    cuts = cut_model(
        model,
        stage_of_layer,
        shapes,
        plan.partition.skip_routing,
        with_gradients=has_backward(plan),
    )
    return cut_payloads(cuts)


def _assumptions(
    plan: Plan,
    sizes: SizeClasses,
    batch: Batch,
    model: Model | None,
    stages: tuple[ResolvedStage, ...],
    boundaries: tuple[Boundary, ...],
    counts: PathCounts,
    idle: int,
) -> tuple[Statement, ...]:
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
        said.append(statements.microbatches_differ(sizes.count))
    if not has_backward(plan):
        said.append(statements.BACKWARD_IGNORED)
        recomputed = any(stage.recompute_seconds for stage in plan.stages or ())
        if recomputed or plan.recompute != Recompute.NONE.value:
            said.append(statements.RECOMPUTE_IGNORED)
    if degrees.world_size > degrees.pipeline:
        said.append(statements.UNIFORM_RANKS)
    if model is not None:
        if degrees.context > 1 and batch.rank_sequence_length is not None:
            said.append(statements.context_costs(batch.rank_sequence_length))
        if None in model.producers:
            said.append(statements.LOADS_AT_EACH_STAGE)
    said += _schedule_assumptions(plan, stages, boundaries)
    said += _transfer_assumptions(plan, _once(boundaries), counts)
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
    plan: Plan, stages: tuple[ResolvedStage, ...], boundaries: tuple[Boundary, ...]
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
        said.append(statements.order_for_times(limit, bytes_known=sized))
    any_chunks = family.chunks is None and not family.takes_order
    if any_chunks and plan.schedule.chunks_per_rank == 1:
        said.append(statements.ONE_CHUNK)
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


def _not_represented(
    plan: Plan,
    batch: Batch,
    stages: tuple[ResolvedStage, ...],
    boundaries: tuple[Boundary, ...],
    costs: list[list[LayerCost]] | None,
) -> tuple[Statement, ...]:
    degrees = plan.degrees
    left_out = [statements.LOADER_TIME, statements.MEMORY, statements.ACTIVATION_BUFFERS]
    if has_backward(plan):
        left_out.append(statements.OPTIMIZER_STEP)
        if plan_family(plan).update is not None:
            left_out.append(statements.WEIGHT_STASHES)
        if plan_family(plan).directions > 1:
            left_out.append(statements.TWO_COPIES_REDUCTION)
        if degrees.data > 1:
            left_out.append(statements.DATA_PARALLEL_REDUCTION)
        if any(stage.recompute_picoseconds for stage in stages):
            left_out.append(statements.RECOMPUTE_TRANSIENT)
    measured = costs is not None and all(
        cost.communication_known for of_class in costs for cost in of_class
    )
    if degrees.tensor > 1 and not measured:
        left_out.append(statements.TENSOR_COMMUNICATION)
    if degrees.context > 1:
        left_out.append(statements.CONTEXT_COMMUNICATION)
    if boundaries:
        left_out.append(statements.CONTENTION)
    if plan.topology is None:
        left_out.append(statements.PHYSICAL_PATHS)
    unknown_bytes = sum(boundary.forward_bytes is None for boundary in boundaries)
    if unknown_bytes:
        left_out.append(statements.boundary_bytes_unknown(unknown_bytes))
    unknown_activations = sum(stage.activation_bytes is None for stage in stages)
    if unknown_activations:
        left_out.append(statements.activation_bytes_unknown(unknown_activations))
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
