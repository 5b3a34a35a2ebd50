"""From a plan to numbers: stages, boundaries, ranks on devices, and what was assumed on the way."""

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from service.core.amounts import SizeClasses
from service.core.errors import Fault, InvalidInput
from service.core.models.cuts import cut_model
from service.core.models.graph import Model
from service.core.models.weights import StageWeights, stage_weights
from service.core.moe.routing import Routing
from service.core.plans.assumed import assumed_layers
from service.core.plans.assumed_activations import (
    AssumedActivations,
    activations_assumed,
    assume_activations,
    with_activations,
)
from service.core.plans.boundaries import price
from service.core.plans.check import check_form
from service.core.plans.check_moe import check_moe
from service.core.plans.check_training import check_expert_degrees
from service.core.plans.costs import given_stages
from service.core.plans.device_loads import device_loads, load_assumptions
from service.core.plans.devices import expand_devices
from service.core.plans.disclosure import assumptions_of, left_out_of
from service.core.plans.documents_assumed import documents_assumed
from service.core.plans.exchange_statements import exchanges_on_paths
from service.core.plans.flops import plan_flops
from service.core.plans.held_weights import given_weights, model_weights
from service.core.plans.loads import DeviceLoad
from service.core.plans.measured import PricedLayers, layer_costs, measured_stages
from service.core.plans.moe.contract import contract_faults
from service.core.plans.moe.kept import with_received_rows
from service.core.plans.moe.resolve import (
    ResolvedExperts,
    expert_inputs,
    resolve_experts,
    routing_steps,
)
from service.core.plans.partition import assign_layers, check_partition
from service.core.plans.payloads import Payload, cut_payloads, given_payloads
from service.core.plans.placement import Layout, check_order, layout, place_ranks
from service.core.plans.plan import (
    Boundary,
    Placed,
    Plan,
    PlanFlops,
    ResolvedPlan,
    ResolvedStage,
    TransferOrigin,
)
from service.core.plans.rank_weights import RankWeights
from service.core.plans.relays import relay_assumptions, waiting_left_out
from service.core.plans.schedule import (
    check_schedule,
    has_backward,
    stage_count,
    stage_ranks,
)
from service.core.plans.tied_exchange import PricedCopies, tied_copies
from service.core.plans.tied_statements import assumptions_of_copies, left_out_of_copies
from service.core.plans.workload import Batch, batch_shapes, resolve_batch, size_classes
from service.core.profiles.profile import Profile
from service.core.schedules.transfers import TransferMode
from service.core.topology.cluster import Cluster

__all__ = ["resolve"]

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
    routing: Routing | None = None,
) -> ResolvedPlan:
    """Price each stage and boundary of a plan, and put its ranks on devices.

    `cluster`, `model`, `profile` and `routing` are what the plan's references stand for: each is
    given exactly when the plan names one (`ValueError` otherwise).

    Raises `InvalidInput` with every fault that can be told; paths point into a plan document.
    A part whose own input is at fault is not looked at further.
    """
    _require_references(plan, cluster, model, profile, routing)
    of_schedule = check_schedule(plan)
    collector = _Collector([*check_form(plan), *of_schedule])
    attempt = collector.attempt

    sizes = size_classes(plan, routing_steps(plan, routing))
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
    layers: PricedLayers | None = None
    flops: PlanFlops | None = None
    weights: tuple[StageWeights, ...] | None = None
    rank_weights: tuple[RankWeights | None, ...] = (None,) * plan.degrees.pipeline
    assumed: AssumedActivations | None = None
    copies: PricedCopies | None = None
    loads: tuple[DeviceLoad, ...] | None = None
    experts: ResolvedExperts | None = None
    stage_of_layer: tuple[int, ...] | None = None
    homes = stage_ranks(plan)
    of_stages = _devices_of_stages(plan, ranks, placement, homes)
    written = plan.schedule.order is not None
    if of_schedule and written:
        pass  # without a readable order nobody knows how many stages there are
    elif plan.stages is not None:
        stages = attempt(given_stages, plan, sizes)
        if stages is not None and homes is not None:
            rank_weights = given_weights(plan, plan.stages, homes)
        if stages is not None and batch is not None:
            payloads = given_payloads(plan.stages, sizes, backward=has_backward(plan))
    elif model is not None:
        if profile is not None and batch is not None:
            layers = attempt(layer_costs, plan, model, profile, batch, sizes)
        stage_of_layer = attempt(_assign, plan, model)
        placed = cluster is None or of_stages is not None
        if plan.assumed is not None and placed and stage_of_layer is not None and batch is not None:
            layers = attempt(
                assumed_layers, plan, model, batch, sizes, stage_of_layer, of_stages, cluster
            )
        if layers is not None and batch is not None:
            flops = plan_flops(plan, model, layers.policies, batch, sizes)
            if stage_of_layer is not None:
                assumed = assume_activations(plan, model, layers, batch)
                stages = measured_stages(plan, model, stage_of_layer, assumed.costs)
                stages = with_activations(plan, stages, stage_of_layer, assumed)
        if stage_of_layer is not None and batch is not None:
            payloads = attempt(_cut, plan, model, stage_of_layer, batch, sizes)
        if stage_of_layer is not None:
            weights = stage_weights(model, stage_of_layer)
            if homes is not None:
                rank_weights = model_weights(plan, model, stage_of_layer, homes)
            if ranks is not None and placement is not None and homes is not None:
                copies = attempt(
                    tied_copies, plan, model, stage_of_layer, ranks, placement, homes, cluster
                )

    if stages is not None and batch is not None and ranks is not None and placement is not None:
        faulty = check_moe(plan) or check_expert_degrees(plan.degrees)
        if plan.moe is not None and homes is not None and not faulty:
            where = ranks, placement, homes, cluster
            asked = attempt(
                expert_inputs, plan, model, stage_of_layer, routing, batch, sizes, *where
            )
            policies = None if layers is None else layers.policies
            if asked is not None:
                experts = attempt(
                    resolve_experts, plan, model, asked, stages, policies, sizes, of_stages, cluster
                )
                stages = stages if experts is None else experts.stages
            if experts is not None:
                collector.faults += contract_faults(plan.contract, experts.moe, sizes)
            if experts is not None and layers is not None and stage_of_layer is not None and model:
                stages, assumed = with_received_rows(
                    plan, model, layers, batch, stage_of_layer, stages, experts.moe, sizes
                )
        if model is not None and stage_of_layer is not None and homes is not None:
            size = batch.microbatch_size
            loads = attempt(
                device_loads, plan, model, profile, stage_of_layer, stages, homes, size, sizes
            )

    priced = None
    if payloads is not None and ranks is not None and placement is not None and homes is not None:
        priced = attempt(price, payloads, ranks, placement, homes, cluster, sizes)
    if collector.faults:
        raise InvalidInput(dict.fromkeys(collector.faults))
    if ranks is None or batch is None or stages is None or placement is None or priced is None:
        raise RuntimeError("a plan without faults was not resolved")
    boundaries, counts = priced
    tied = () if copies is None else copies.copies
    if copies is not None:
        counts.add(copies.counts)
    mode = _transfer_mode(plan, boundaries)
    return ResolvedPlan(
        plan=plan,
        transfer_mode=mode,
        sizes=sizes,
        stages=stages,
        boundaries=boundaries,
        weights=weights,
        rank_weights=rank_weights,
        tied_copies=tied,
        loads=loads,
        placement=placement,
        model=model,
        cluster=cluster,
        memory_bytes=_memory(plan, ranks, placement, cluster),
        microbatch_size=batch.microbatch_size,
        global_batch_size=batch.global_batch_size,
        held_fixed=batch.held_fixed,
        sequence_length=batch.sequence_length,
        flops=flops,
        assumptions=(
            *assumptions_of(
                plan, mode, sizes, batch, model, profile, stages, boundaries, counts, idle
            ),
            *assumptions_of_copies(tied),
            *relay_assumptions(boundaries),
            *load_assumptions(plan, loads),
            *(() if layers is None else layers.assumptions),
            *activations_assumed(plan, assumed),
            *documents_assumed(plan, cluster, profile, placement),
            *(() if experts is None else experts.assumptions),
        ),
        not_represented=(
            *left_out_of(
                plan, mode, batch, stages, boundaries, None if layers is None else layers.costs
            ),
            *(() if layers is None else layers.left_out),
            *left_out_of_copies(tied),
            *waiting_left_out(boundaries),
            *(() if experts is None else experts.left_out),
        ),
        moe=None if experts is None else experts.moe,
    )


def _devices_of_stages(
    plan: Plan,
    ranks: Layout | None,
    placement: tuple[Placed, ...] | None,
    homes: Sequence[Sequence[int]] | None,
) -> list[list[str]] | None:
    """The devices that each stage runs on, in any direction; None where they are not known."""
    if ranks is None or placement is None or homes is None or plan.topology is None:
        return None
    of_rank = [
        [device for rank in ranks.ranks_at(number) if (device := placement[rank].device)]
        for number in range(ranks.pipeline.degree)
    ]
    return [
        [device for rank in sorted(set(hosts)) for device in of_rank[rank]]
        for hosts in zip(*homes, strict=True)
    ]


def _transfer_mode(plan: Plan, boundaries: tuple[Boundary, ...]) -> TransferMode:
    """As the plan says; else `link` where any transfer is priced on a path, or experts of several
    stages exchange over some, and `latency` where none.

    Without a path there is no link to queue for, so the two would be the same.
    """
    if plan.schedule.transfer_mode is not None:
        return plan.schedule.transfer_mode
    on_paths = any(boundary.origin is TransferOrigin.PATH for boundary in boundaries)
    on_paths |= len(boundaries) > 0 and exchanges_on_paths(plan)
    return TransferMode.LINK if on_paths else TransferMode.LATENCY


def _memory(
    plan: Plan, ranks: Layout, placement: tuple[Placed, ...], cluster: Cluster | None
) -> tuple[int | None, ...]:
    """The memory of the smallest device of each pipeline rank; None where none is known."""
    if cluster is None or plan.memory.device_memory_bytes is not None:
        return (plan.memory.device_memory_bytes,) * ranks.pipeline.degree

    def of(rank: int) -> int | None:
        device = placement[rank].device
        return None if device is None else cluster.vertices[device].memory_bytes

    return tuple(
        min(
            (known for rank in ranks.ranks_at(number) if (known := of(rank)) is not None),
            default=None,
        )
        for number in range(ranks.pipeline.degree)
    )


def _require_references(
    plan: Plan,
    cluster: Cluster | None,
    model: Model | None,
    profile: Profile | None,
    routing: Routing | None,
) -> None:
    for name, reference, document in (
        ("routing", None if plan.moe is None else plan.moe.routing, routing),
        ("cluster", plan.topology, cluster),
        ("model", plan.model, model),
        ("profile", plan.profile, profile),
    ):
        if (reference is None) != (document is None):
            raise ValueError(f"{name} is given exactly when the plan names one: {reference!r}")


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
    cuts = cut_model(
        model,
        stage_of_layer,
        batch_shapes(plan, batch, sizes),
        plan.partition.skip_routing,
        with_gradients=has_backward(plan),
    )
    return cut_payloads(cuts)
