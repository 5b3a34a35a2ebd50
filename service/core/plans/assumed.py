"""What one microbatch costs on each layer where no profile says: FLOPs and bytes over the rates of
the device, times stated efficiencies. Every number of it is an assumption and marked so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.amounts import SizeClasses
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.models.dtypes import DType
from service.core.models.flops import CountedFrom, LayerFlops, layer_flops
from service.core.models.graph import Layer, Model
from service.core.models.sizes import BatchShape, TensorBytes, tensor_bytes
from service.core.plans.device_rates import slowest_rates, stated_dtype
from service.core.plans.measured import FREE, PricedLayers, check_lookups
from service.core.plans.plan import AssumedCosts, Plan, Statement
from service.core.plans.recompute import layer_policies
from service.core.plans.statements import counted
from service.core.plans.workload import Batch, batch_shapes
from service.core.profiles.measurement import (
    NO_COMMUNICATION,
    Communication,
    LayerCost,
    Recompute,
)
from service.core.profiles.provenance import Provenance
from service.core.profiles.roofline import COMPUTE_EFFICIENCY, MEMORY_EFFICIENCY, Roofline
from service.core.topology.cluster import Cluster

__all__ = ["assumed_layers"]

_PATH = ("costs", "assumed")


@dataclass(frozen=True, slots=True)
class _Shape:
    """One size class: the tokens that one rank's share of a microbatch has, and tensors' bytes."""

    tokens: int
    token_pairs: int
    tensors: tuple[TensorBytes | None, ...]


def assumed_layers(
    plan: Plan,
    model: Model,
    batch: Batch,
    sizes: SizeClasses,
    stage_of_layer: Sequence[int],
    devices: Sequence[Sequence[str]] | None,
    cluster: Cluster | None,
) -> PricedLayers:
    """The cost of each layer, in execution order, for each size class.

    `devices` has those of each stage, None without a topology. The slowest of a stage's counts.

    Forward, gradient of the inputs and gradient of the weights each take the longer of their FLOPs
    over the sustained peak and of their bytes over the sustained memory bandwidth. The bytes of
    each are those of the layer's weights on one rank and of the tensors that it takes and hands
    out. Tensor-parallel ranks share FLOPs evenly, context ranks the tokens, and experts are taken
    to be chosen evenly. A recomputation is a forward again, or what attention multiplies beyond its
    weights under `selective`.

    Raises `InvalidInput` with every rate that neither the topology nor the plan gives.
    """
    assumed = plan.assumed
    if assumed is None:
        raise ValueError("the plan assumes no costs")
    check_lookups(model, sizes, tensors=True)
    _check_heads(plan, model)
    dtype = _compute_dtype(plan, model)
    rooflines = _rooflines(assumed, dtype, max(stage_of_layer) + 1, devices, cluster)
    policies = layer_policies(plan, model)
    shapes = [_shape(model, shape) for shape in batch_shapes(plan, batch, sizes)]
    touching = _tensors_of_layers(model)
    costs = []
    for shape in shapes:
        of_class = []
        for position, layer in enumerate(model.layers):
            of_class.append(
                FREE
                if layer.is_input
                else _cost(
                    plan,
                    layer,
                    shape,
                    touching[position],
                    rooflines[stage_of_layer[position]],
                    policies[position],
                )
            )
        costs.append(of_class)
    unsized = sum(size is None for size in shapes[0].tensors)
    return PricedLayers(
        costs,
        policies,
        (_assumption(model, assumed, dtype, rooflines),),
        _left_out(unsized),
    )


def _check_heads(plan: Plan, model: Model) -> None:
    """Tensor-parallel ranks share whole heads, or not all of them do the same work."""
    ranks = plan.degrees.tensor
    for layer in model.layers:
        attention = None if layer.dimensions is None else layer.dimensions.attention
        if attention is not None and attention.heads % ranks:
            detail = (
                f"{ranks} ranks can't share the {attention.heads} attention heads of layer"
                f" {layer.name!r} evenly: without a profile tensor divides them"
            )
            path = ("parallelism", "tensor")
            raise InvalidInput([Fault(FaultCode.INDIVISIBLE, path, detail)])


def _compute_dtype(plan: Plan, model: Model) -> DType:
    """As the plan says; else that of the most weights."""
    dtype = stated_dtype(plan, model)
    if dtype is None:
        detail = "the model has no weights to tell in which type it computes: say so"
        path = (*_PATH, "compute_dtype")
        raise InvalidInput([Fault(FaultCode.MISSING_FIELD, path, detail)])
    return dtype


def _rooflines(
    assumed: AssumedCosts,
    dtype: DType,
    stages: int,
    devices: Sequence[Sequence[str]] | None,
    cluster: Cluster | None,
) -> list[Roofline]:
    """Of the slowest device of each stage; what the plan states goes before what devices say."""
    rates = slowest_rates(
        dtype,
        stages,
        devices,
        cluster,
        peak_flops=assumed.peak_flops,
        memory_bytes_per_second=assumed.memory_bytes_per_second,
        path=_PATH,
    )
    compute, memory = _efficiencies(assumed)
    return [Roofline(peak * compute, bandwidth * memory) for peak, bandwidth in rates]


def _efficiencies(assumed: AssumedCosts) -> tuple[float, float]:
    return (
        COMPUTE_EFFICIENCY if assumed.compute_efficiency is None else assumed.compute_efficiency,
        MEMORY_EFFICIENCY if assumed.memory_efficiency is None else assumed.memory_efficiency,
    )


def _shape(model: Model, batch: BatchShape) -> _Shape:
    if batch.sequence_length is None:
        raise ValueError("a plan with assumed costs says how many tokens a microbatch has")
    tokens = batch.microbatch_size * (batch.sequence_length // batch.context)
    found = [tensor_bytes(tensor, batch) for tensor in model.tensors]
    return _Shape(
        tokens=tokens,
        token_pairs=tokens * batch.sequence_length,
        tensors=tuple(None if isinstance(size, Fault) else size for size in found),
    )


def _tensors_of_layers(model: Model) -> list[list[int]]:
    """The numbers of the tensors that each layer takes or hands out."""
    touching: list[list[int]] = [[] for _ in model.layers]
    for number, (producer, consumers) in enumerate(
        zip(model.producers, model.consumers, strict=True)
    ):
        for position in dict.fromkeys((*consumers, *(() if producer is None else (producer,)))):
            touching[position].append(number)
    return touching


def _cost(
    plan: Plan,
    layer: Layer,
    shape: _Shape,
    touching: Sequence[int],
    roofline: Roofline,
    policy: Recompute,
) -> LayerCost:
    flops = layer_flops(layer, shape.tokens, shape.token_pairs)
    if flops is None:
        raise ValueError("tokens are known, so FLOPs are")
    tensor = plan.degrees.tensor
    moved = _weight_bytes(plan, layer, shape.tokens) + sum(
        size.forward for number in touching if (size := shape.tensors[number]) is not None
    )
    try:
        forward = roofline.picoseconds(flops.forward // tensor, moved)
        of_inputs = roofline.picoseconds(flops.backward_input // tensor, moved)
        of_weights = (
            roofline.picoseconds(flops.backward_weight // tensor, moved) if layer.parameters else 0
        )
        again = _again(flops, tensor, moved, roofline, policy)
    except OverflowError as error:
        detail = f"layer {layer.name!r} would take too long: {error}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, _PATH, detail)]) from error
    return LayerCost(
        forward_picoseconds=forward,
        backward_picoseconds=of_inputs + of_weights,
        backward_input_picoseconds=of_inputs,
        backward_weight_picoseconds=of_weights,
        recompute_picoseconds=again,
        communication=NO_COMMUNICATION if tensor == 1 else Communication(),
        saved_activation_bytes=None,
        recomputed_activation_bytes=None if again else 0,
        provenance=Provenance.ASSUMED,
        relative_error=None,
    )


def _again(
    flops: LayerFlops, tensor: int, moved: int, roofline: Roofline, policy: Recompute
) -> int:
    if policy is Recompute.FULL:
        return roofline.picoseconds(flops.forward // tensor, moved)
    if policy is Recompute.SELECTIVE:
        return roofline.picoseconds(flops.attention // tensor, 0)
    return 0


def _weight_bytes(plan: Plan, layer: Layer, tokens: int) -> int:
    """Of what one rank reads of the layer's weights; of an embedding the rows that it looks up."""
    of = layer.dimensions
    moved = 0
    for parameter in layer.parameters:
        elements = plan.degrees.share(parameter.count, parameter.split)
        if of is not None and of.embedding_vocabulary is not None:
            elements = min(elements, tokens * of.hidden)
        moved += elements * parameter.dtype.bytes_per_element
    return moved


def _assumption(
    model: Model, assumed: AssumedCosts, dtype: DType, rooflines: Sequence[Roofline]
) -> Statement:
    compute, memory = _efficiencies(assumed)
    stated = [
        "the plan's own" if given is not None else f"the default ({source})"
        for given, source in (
            (assumed.compute_efficiency, "44 to 52 % of an A100 in Narayanan et al. 2021, table 1"),
            (assumed.memory_efficiency, "a copy on a V100, 790 of 900 GB/s, Warburton 2018"),
        )
    ]
    flops = [one.flops_per_second for one in rooflines]
    rates = [one.bytes_per_second for one in rooflines]
    said = (
        f"no cost of a layer was measured: each pass takes the longer of its FLOPs over "
        f"{_span(flops)} FLOP/s ({compute:.3g} of the peak for {dtype.value}, {stated[0]}) and of "
        f"its bytes over {_span(rates)} B/s ({memory:.3g} of the memory bandwidth, {stated[1]}); "
        "a backward has twice the FLOPs of a forward, attention the full square of the sequence, "
        "tensor-parallel ranks share them evenly"
    )
    of_one = [layer_flops(layer, 1, 1) for layer in model.layers]
    plain = sum(one is not None and one.counted_from is CountedFrom.PARAMETERS for one in of_one)
    if plain:
        said += f"; {plain} layers without dimensions take 2 FLOPs a parameter and token"
    if any(layer.has_experts for layer in model.layers):
        said += "; tokens choose their experts evenly"
    return Statement("assumed_costs", said)


def _span(rates: Sequence[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _left_out(unsized: int) -> tuple[Statement, ...]:
    inside = Statement(
        "assumed_inside",
        "what lies between the products of an assumed layer: launches, norms, activations, and the "
        "memory that its own intermediates go through",
    )
    if not unsized:
        return (inside,)
    tensors = counted(unsized, "tensor", "tensors")
    sizes = Statement(
        "assumed_tensor_bytes",
        f"the memory traffic of {tensors} whose bytes are not known at this shape",
    )
    return (inside, sizes)
