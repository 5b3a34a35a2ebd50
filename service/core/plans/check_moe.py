"""What is wrong with the `moe` of a plan, whatever documents it refers to."""

from itertools import pairwise

from service.core.errors import Fault, FaultCode, Path
from service.core.moe.capacity import capacity_faults
from service.core.moe.overflow import OverflowPolicy
from service.core.moe.settings import (
    Deduplication,
    Dispatcher,
    ExpertShape,
    LayerCostsInclude,
    MoeSettings,
    Payloads,
)
from service.core.moe.skews import check_skew
from service.core.plans.plan import Degrees, Plan, Workload
from service.core.plans.schedule import multiple_of_chunks, stage_count
from service.core.plans.workload import prices_layers

__all__ = ["check_moe", "routing_layers_faults"]

_PAIRS = (
    "a pair with experts takes as long as its forward and its backward with theirs: leave this out"
)


def check_moe(plan: Plan) -> list[Fault]:
    """Every fault of these; none of a plan without `moe`."""
    settings = plan.moe
    if settings is None:
        return []
    return [
        fault
        for faults in (
            _check_source(settings, plan.degrees),
            _check_capacity(settings),
            _check_ways(plan, settings),
            _check_payloads(settings.payloads),
            _check_compute(plan, settings),
            _check_placement(settings, plan.degrees),
            _check_shape(plan, settings.shape),
            _check_layer_costs(plan, settings),
            _check_tensor(plan.degrees),
        )
        for fault in faults
    ]


def _fault(code: FaultCode, detail: str, *path: str | int) -> Fault:
    here: Path = ("moe", *path)
    return Fault(code, here, detail)


def _check_source(settings: MoeSettings, degrees: Degrees) -> list[Fault]:
    faults, shape = [], settings.shape
    if settings.routing is not None and settings.skew is not None:
        detail = "tokens are routed as a document says or by a named skew: give one of the two"
        faults.append(_fault(FaultCode.EXCLUSIVE_FIELDS, detail, "skew"))
    if settings.skew is not None:
        faults += check_skew(
            settings.skew,
            experts=None if shape is None else shape.experts,
            top_k=None if shape is None else shape.top_k,
            ranks=degrees.expert,
            path=("moe", "skew"),
        )
    if settings.routing_layers is not None and settings.routing is None:
        detail = "these are layers of a routing: name one in moe.routing, or leave this out"
        faults.append(_fault(FaultCode.EXCLUSIVE_FIELDS, detail, "routing_layers"))
    return faults


def _check_capacity(settings: MoeSettings) -> list[Fault]:
    capacity = settings.capacity
    faults = [fault.under("moe") for fault in capacity_faults(capacity)]
    falls_back = capacity.overflow is OverflowPolicy.FALLBACK
    seconds = settings.fallback_seconds_per_row
    if falls_back and seconds is None:
        detail = "say what a token takes on the fallback path (0 for one that is free)"
        faults.append(_fault(FaultCode.MISSING_FIELD, detail, "fallback_seconds_per_row"))
    elif not falls_back and seconds is not None:
        detail = f"{capacity.overflow.value} sends nothing on a fallback path: leave this out"
        faults.append(_fault(FaultCode.EXCLUSIVE_FIELDS, detail, "fallback_seconds_per_row"))
    return faults


def _check_ways(plan: Plan, settings: MoeSettings) -> list[Fault]:
    faults = []
    if settings.deduplication is Deduplication.NODE and plan.topology is None:
        detail = "copies are spared by host, and no topology says which ranks share one: name it"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("topology",), detail))
    gathers = settings.dispatcher is Dispatcher.ALL_GATHER
    if gathers and settings.deduplication is not Deduplication.NONE:
        detail = "all_gather sends one copy of each token to each rank: there is none to spare"
        faults.append(_fault(FaultCode.EXCLUSIVE_FIELDS, detail, "deduplication"))
    overlap = settings.overlap
    if overlap.chunks == 1 and overlap.compute_fraction_left < 1:
        detail = "one chunk runs under nothing: give more chunks, or leave this out"
        path = ("overlap", "compute_fraction_left")
        faults.append(_fault(FaultCode.INCONSISTENT, detail, *path))
    return faults


def _check_payloads(payloads: Payloads) -> list[Fault]:
    """Only floating types carry activations, and scales stand beside blocks."""
    faults = []
    for name in ("forward_dispatch", "forward_combine", "backward_dispatch", "backward_combine"):
        dtype = getattr(payloads, name).dtype
        if not dtype.is_floating:
            detail = f"activations and gradients are floating numbers; got {dtype.value}"
            faults.append(_fault(FaultCode.INCONSISTENT, detail, "payloads", name, "dtype"))
    return faults


def _check_compute(plan: Plan, settings: MoeSettings) -> list[Fault]:
    compute, faults = settings.compute, []
    rates: tuple[str, ...] = ("peak_flops", "memory_bytes_per_second")
    if compute.curve and not settings.overlap.shared_expert:
        for name in ("peak_flops", "compute_efficiency"):
            if getattr(compute, name) is not None:
                detail = "the curve says what products take: leave this out, or the curve"
                faults.append(_fault(FaultCode.EXCLUSIVE_FIELDS, detail, "compute", name))
        rates = ("memory_bytes_per_second",)
    rows = [point.rows for point in compute.curve]
    for index, (before, after) in enumerate(pairwise(rows), 1):
        if after <= before:
            detail = f"points of the curve ascend: more rows than {before}"
            path = ("compute", "curve", index, "rows")
            faults.append(_fault(FaultCode.INCONSISTENT, detail, *path))
    if plan.topology is None and plan.assumed is None:
        for name in rates:
            if getattr(compute, name) is None:
                what = "its peak" if name == "peak_flops" else "its memory bandwidth"
                detail = f"without a topology no device says {what}: give it here, or name one"
                faults.append(_fault(FaultCode.MISSING_FIELD, detail, "compute", name))
    return faults


def _check_placement(settings: MoeSettings, degrees: Degrees) -> list[Fault]:
    placed = settings.experts_by_rank
    if placed is None or len(placed) == degrees.expert:
        return []
    detail = f"one list for each of {degrees.expert} ranks (parallelism.expert); got {len(placed)}"
    return [_fault(FaultCode.WRONG_LENGTH, detail, "placement")]


def _check_shape(plan: Plan, shape: ExpertShape | None) -> list[Fault]:
    if plan.stages is None:
        if shape is None:
            return []
        detail = "the model says what its layers with experts are: leave this out"
        return [_fault(FaultCode.EXCLUSIVE_FIELDS, detail, "shape")]
    if shape is None:
        detail = "no model says what the layers with experts of these stages are: say it here"
        return [_fault(FaultCode.MISSING_FIELD, detail, "shape")]
    faults = []
    stages, given = stage_count(plan), len(shape.layers_per_stage)
    if given != stages:
        detail = f"one number for each of {stages} stages{multiple_of_chunks(plan, given)}"
        path = ("shape", "layers_per_stage")
        faults.append(_fault(FaultCode.WRONG_LENGTH, f"{detail}; {given} given", *path))
    elif not any(shape.layers_per_stage):
        detail = "no stage has a layer with experts: give one of them one, or leave moe out"
        faults.append(_fault(FaultCode.INCONSISTENT, detail, "shape", "layers_per_stage"))
    if shape.top_k > shape.experts:
        detail = f"a token's experts differ, so they are at most {shape.experts}"
        faults.append(_fault(FaultCode.INCONSISTENT, detail, "shape", "top_k"))
    if plan.moe is not None and plan.moe.routing_layers is not None:
        faults += routing_layers_faults(plan.moe.routing_layers, sum(shape.layers_per_stage))
    return [*faults, *_check_tokens(plan.workload, shape)]


def routing_layers_faults(layers: tuple[int, ...], expert_layers: int) -> list[Fault]:
    """Another number of them than there are layers with experts."""
    if len(layers) == expert_layers:
        return []
    detail = f"one for each of {expert_layers} layers with experts; {len(layers)} given"
    return [_fault(FaultCode.WRONG_LENGTH, detail, "routing_layers")]


def _check_tokens(workload: Workload, shape: ExpertShape) -> list[Fault]:
    sized = workload.microbatch_size is not None or workload.global_batch_size is not None
    long = (workload.sequence_length, workload.microbatch_sequence_lengths) != (None, None)
    follows, path = sized and long, ("shape", "tokens_per_rank")
    if follows and shape.tokens_per_rank is not None:
        detail = "they follow from the microbatch size and the sequence length: leave this out"
        return [_fault(FaultCode.EXCLUSIVE_FIELDS, detail, *path)]
    if not follows and shape.tokens_per_rank is None:
        detail = (
            "say how many tokens of a microbatch a rank has, here or by microbatch_size and "
            "sequence_length of the workload"
        )
        return [_fault(FaultCode.MISSING_FIELD, detail, *path)]
    return []


def _check_layer_costs(plan: Plan, settings: MoeSettings) -> list[Fault]:
    stated, path = settings.layer_costs_include, "layer_costs_include"
    if plan.assumed is not None:
        if stated not in (None, LayerCostsInclude.EXPERTS):
            detail = "assumed costs contain the products of the experts: say experts, or nothing"
            return [_fault(FaultCode.INCONSISTENT, detail, path)]
        return []
    faults = [
        Fault(FaultCode.EXCLUSIVE_FIELDS, ("costs", "stages", number, "pair_seconds"), _PAIRS)
        for number, stage in enumerate(plan.stages or ())
        if stage.pair_seconds is not None
    ]
    if stated is None:
        of = "measured" if plan.profile is not None else "given"
        detail = (
            f"say what of the experts the {of} costs contain: nothing, experts (their products), "
            "or experts_and_exchange"
        )
        faults.append(_fault(FaultCode.MISSING_FIELD, detail, path))
    workload = plan.workload
    if prices_layers(plan) and (
        workload.sequence_length is None and workload.microbatch_sequence_lengths is None
    ):
        detail = "experts are asked by tokens: say how long sequences are"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("workload", "sequence_length"), detail))
    return faults


def _check_tensor(degrees: Degrees) -> list[Fault]:
    if degrees.tensor == 1 or degrees.sequence_parallel:
        return []
    detail = (
        f"without it the {degrees.tensor} tensor-parallel ranks hold the same tokens, and each "
        "would send them to the experts: set it, or tensor to 1"
    )
    return [Fault(FaultCode.INCONSISTENT, ("parallelism", "sequence_parallel"), detail)]
