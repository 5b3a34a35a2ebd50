"""Which tensors cross which boundary of a partition, and with how many bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.amounts import Amount, total
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.models.agreement import disagreements
from service.core.models.graph import Model, Tensor
from service.core.models.sizes import BatchShape, rank_shape, tensor_bytes

__all__ = ["MAX_CROSSINGS", "CrossingTensor", "Cut", "SkipRouting", "cut_model"]

# Tensors listed over all boundaries of one plan, once for each stage they are carried for.
MAX_CROSSINGS = 200_000


class SkipRouting(StrEnum):
    """How a tensor with a later consumer travels: through each stage between, or straight."""

    RELAY = "relay"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class CrossingTensor:
    """A tensor that crosses a boundary: bytes one rank sends to its peer for one microbatch.

    `consumed_stages` are the stages it is carried across this boundary for, `consumers` the layers
    of the stage behind it that take it, none where it is passed on. `shape` is what one rank sends;
    None where the model has recorded bytes alone, and where size classes differ in it.
    """

    tensor: Tensor
    producer: str
    produced_stage: int
    consumed_stages: tuple[int, ...]
    consumers: tuple[str, ...]
    shape: tuple[int, ...] | None
    forward_bytes: Amount
    backward_bytes: Amount  # of its gradient; 0 when it needs none

    @property
    def name(self) -> str:
        """Its identity: unique in the model, and the same at both ends."""
        return self.tensor.name


@dataclass(frozen=True, slots=True)
class Cut:
    """What stage `source` hands to stage `target`, tensors in the order of the model."""

    source: int
    target: int
    tensors: tuple[CrossingTensor, ...]

    @property
    def forward_bytes(self) -> Amount:
        """Bytes of one rank pair and one microbatch, forward."""
        return total(*(tensor.forward_bytes for tensor in self.tensors))

    @property
    def backward_bytes(self) -> Amount:
        """Bytes of one rank pair and one microbatch, backward."""
        return total(*(tensor.backward_bytes for tensor in self.tensors))


def cut_model(
    model: Model,
    stage_of_layer: Sequence[int],
    batches: Sequence[BatchShape],
    routing: SkipRouting = SkipRouting.RELAY,
    *,
    with_gradients: bool = True,
) -> tuple[Cut, ...]:
    """The boundaries of a partition, ordered by (source, target).

    `stage_of_layer` gives the stage of each layer position; no tensor goes to an earlier stage.
    `batches` has the shape of a microbatch of each size class.
    Under `relay` there is one cut for each two neighbouring stages (possibly with no tensor), and
    s|s+1 carries what is produced at or before s and consumed after s. Under `direct` there is one
    cut for each stage pair with a tensor between them. Either way a tensor crosses a cut once,
    however many of the layers behind it consume it. Inputs from outside cross no cut: the loader
    is at every stage that consumes them. Without gradients nothing goes back: backward bytes are 0.

    Raises `InvalidInput` with every fault of sizes and every tensor that is expected otherwise than
    it is sent (paths into a plan document), and when more than `MAX_CROSSINGS` tensors would have
    to be listed, each in every size class.
    """
    travels = _travels(model, stage_of_layer)
    crossings = sum(
        _listed(stage_of_layer[producer], targets, routing) for _, producer, targets in travels
    )
    if crossings * len(batches) > MAX_CROSSINGS:
        of = f" of {len(batches)} sizes" * (len(batches) > 1)
        detail = f"{crossings} crossings of tensors{of}; at most {MAX_CROSSINGS} can be listed"
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, ("partition",), detail)])
    faults = disagreements(model, stage_of_layer, batches)
    sizes = _sizes(model, [index for index, _, _ in travels], batches, faults)
    shapes = {index: _shape(model.tensors[index], batches) for index, _, _ in travels}

    tensors: dict[tuple[int, int], list[CrossingTensor]] = {}
    if routing is SkipRouting.RELAY:
        for source in range(max(stage_of_layer, default=0)):
            tensors[source, source + 1] = []
    for index, producer, targets in travels:
        source = stage_of_layer[producer]
        taken_by: dict[int, list[str]] = {}
        for consumer in model.consumers[index]:
            taken_by.setdefault(stage_of_layer[consumer], []).append(model.layers[consumer].name)
        if routing is SkipRouting.RELAY:
            edges = [(stage, stage + 1) for stage in range(source, targets[-1])]
        else:
            edges = [(source, target) for target in targets]
        for edge in edges:
            carried_for = (
                tuple(stage for stage in targets if stage > edge[0])
                if routing is SkipRouting.RELAY
                else (edge[1],)
            )
            tensors.setdefault(edge, []).append(
                CrossingTensor(
                    tensor=model.tensors[index],
                    producer=model.layers[producer].name,
                    produced_stage=source,
                    consumed_stages=carried_for,
                    consumers=tuple(taken_by.get(edge[1], ())),
                    shape=shapes[index],
                    forward_bytes=sizes[index][0],
                    backward_bytes=sizes[index][1] if with_gradients else 0,
                )
            )
    return tuple(Cut(*edge, tuple(tensors[edge])) for edge in sorted(tensors))


def _travels(model: Model, stage_of_layer: Sequence[int]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Tensors consumed behind their own stage: (index, producer, consumer stages ascending)."""
    travels = []
    for index, producer in enumerate(model.producers):
        if producer is None:
            continue
        source = stage_of_layer[producer]
        stages = {stage_of_layer[consumer] for consumer in model.consumers[index]}
        stages.discard(source)
        if not stages:
            continue
        if min(stages) < source:
            name = model.tensors[index].name
            raise ValueError(f"tensor {name!r} goes to an earlier stage")
        travels.append((index, producer, tuple(sorted(stages))))
    return travels


def _listed(source: int, targets: Sequence[int], routing: SkipRouting) -> int:
    """How many (boundary, consumer stage) pairs one tensor adds to the answer."""
    if routing is SkipRouting.DIRECT:
        return len(targets)
    return sum(target - source for target in targets)


def _shape(tensor: Tensor, batches: Sequence[BatchShape]) -> tuple[int, ...] | None:
    """The shape on one rank, of a tensor whose sizes are known; None where classes differ."""
    if tensor.shape is None:
        return None
    shapes = {rank_shape(tensor.name, tensor.shape, batch) for batch in batches}
    (shape, *others) = shapes
    return None if others or isinstance(shape, Fault) else shape


def _sizes(
    model: Model,
    indices: Sequence[int],
    batches: Sequence[BatchShape],
    found_before: Sequence[Fault],
) -> dict[int, tuple[Amount, Amount]]:
    """Bytes of each tensor and of its gradient; all faults together with those found before."""
    sizes = {}
    faults: dict[tuple[FaultCode, object], list[Fault]] = {}
    for index in indices:
        found = []
        for batch in batches:
            size = tensor_bytes(model.tensors[index], batch)
            if isinstance(size, Fault):
                faults.setdefault((size.code, size.path), []).append(size)
            else:
                found.append(size)
        if len(found) == len(batches):
            forward, backward = tuple(s.forward for s in found), tuple(s.backward for s in found)
            sizes[index] = total(forward), total(backward)
    if faults or found_before:
        raise InvalidInput([*found_before, *map(_merged, faults.values())])
    return sizes


def _merged(faults: Sequence[Fault]) -> Fault:
    """One fault for many tensors that fail alike, told by the first."""
    first = faults[0]
    others = sum(fault.detail != first.detail for fault in faults)
    if not others:
        return first
    return Fault(first.code, first.path, f"{first.detail} (and {others} more tensors like it)")
