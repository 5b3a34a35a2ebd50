"""Which tensors cross which boundary of a partition, and with how many bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.amounts import Amount, total
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.models.graph import Model
from service.core.models.sizes import BatchShape, tensor_bytes

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

    `consumed_stages` are the stages it is carried across this boundary for.
    """

    name: str
    produced_stage: int
    consumed_stages: tuple[int, ...]
    forward_bytes: Amount
    backward_bytes: Amount  # of its gradient; 0 when it needs none


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

    Raises `InvalidInput` with every fault of sizes (paths into a plan document), and when more
    than `MAX_CROSSINGS` tensors would have to be listed, each in every size class.
    """
    travels = _travels(model, stage_of_layer)
    crossings = sum(_listed(source, targets, routing) for _, source, targets in travels)
    if crossings * len(batches) > MAX_CROSSINGS:
        of = f" of {len(batches)} sizes" * (len(batches) > 1)
        detail = f"{crossings} crossings of tensors{of}; at most {MAX_CROSSINGS} can be listed"
        raise InvalidInput([Fault(FaultCode.WORK_BUDGET, ("partition",), detail)])
    sizes = _sizes(model, [index for index, _, _ in travels], batches)

    tensors: dict[tuple[int, int], list[CrossingTensor]] = {}
    if routing is SkipRouting.RELAY:
        for source in range(max(stage_of_layer, default=0)):
            tensors[source, source + 1] = []
    for index, source, targets in travels:
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
                    name=model.tensors[index].name,
                    produced_stage=source,
                    consumed_stages=carried_for,
                    forward_bytes=sizes[index][0],
                    backward_bytes=sizes[index][1] if with_gradients else 0,
                )
            )
    return tuple(Cut(*edge, tuple(tensors[edge])) for edge in sorted(tensors))


def _travels(model: Model, stage_of_layer: Sequence[int]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Tensors consumed behind their own stage: (index, its stage, consumer stages ascending)."""
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
        travels.append((index, source, tuple(sorted(stages))))
    return travels


def _listed(source: int, targets: Sequence[int], routing: SkipRouting) -> int:
    """How many (boundary, consumer stage) pairs one tensor adds to the answer."""
    if routing is SkipRouting.DIRECT:
        return len(targets)
    return sum(target - source for target in targets)


def _sizes(
    model: Model, indices: Sequence[int], batches: Sequence[BatchShape]
) -> dict[int, tuple[Amount, Amount]]:
    """Bytes of each tensor and of its gradient."""
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
    if faults:
        raise InvalidInput(_merged(same) for same in faults.values())
    return sizes


def _merged(faults: Sequence[Fault]) -> Fault:
    """One fault for many tensors that fail alike, told by the first."""
    first = faults[0]
    others = sum(fault.detail != first.detail for fault in faults)
    if not others:
        return first
    return Fault(first.code, first.path, f"{first.detail} (and {others} more tensors like it)")
