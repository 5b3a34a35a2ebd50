"""Whether both ends of a cut speak of the same tensor: what is handed on, and what is expected."""

from collections.abc import Iterator, Sequence

from service.core.errors import Fault, FaultCode
from service.core.models.graph import Expectation, Model, Symbol, Tensor
from service.core.models.sizes import BatchShape, whole_shape

__all__ = ["MAX_TOLD", "disagreements"]

# Faults of one partition that are told one by one.
MAX_TOLD = 20


def disagreements(
    model: Model, stage_of_layer: Sequence[int], batches: Sequence[BatchShape]
) -> list[Fault]:
    """What consumers on other stages expect otherwise than they would get it, as plan faults.

    `batches` has the shape of a microbatch of each size class, which differ in length alone. Within
    a stage a layer may convert what it takes by itself; across a cut the receiver makes room for
    what it expects, so shape, type and layout have to be the same. What either end leaves open
    agrees.
    """
    told = []
    batches = _telling(batches)
    for tensor, producer, consumers in zip(
        model.tensors, model.producers, model.consumers, strict=True
    ):
        if producer is None or not tensor.expected:
            continue
        home = stage_of_layer[producer]
        for consumer, expected in zip(consumers, tensor.expected, strict=True):
            if expected is None or stage_of_layer[consumer] == home:
                continue
            unlike = "; ".join(_unlike(tensor, expected, batches))
            if unlike:
                detail = (
                    f"tensor {tensor.name!r} goes from layer {tensor.producer!r} on stage {home} "
                    f"to {model.layers[consumer].name!r} on stage {stage_of_layer[consumer]}, "
                    f"which expects another one: {unlike}. Let both say the same, or put them on "
                    "one stage"
                )
                told.append(Fault(FaultCode.INCONSISTENT, ("partition",), detail))
    if len(told) > MAX_TOLD:
        more = f"{len(told) - MAX_TOLD} more tensors are expected otherwise than they are sent"
        told[MAX_TOLD:] = [Fault(FaultCode.INCONSISTENT, ("partition",), more)]
    return told


def _telling(batches: Sequence[BatchShape]) -> list[BatchShape]:
    """The first of each of two lengths: what is alike at two lengths is alike at all."""
    of_length: dict[int | None, BatchShape] = {}
    for batch in batches:
        of_length.setdefault(batch.sequence_length, batch)
    return list(of_length.values())[:2]


def _unlike(tensor: Tensor, expected: Expectation, batches: Sequence[BatchShape]) -> Iterator[str]:
    if expected.shape is not None and tensor.shape is not None:
        for batch in batches:
            sent = whole_shape(tensor.shape, batch)
            taken = whole_shape(expected.shape, batch)
            if len(sent) != len(taken) or any(
                a != b and None not in (a, b) for a, b in zip(sent, taken, strict=True)
            ):
                shown = f"{_shown(expected.shape)} and not {_shown(tensor.shape)}"
                yield f"shape {shown}, so {_shown(taken)} and not {_shown(sent)}"
                break
    if expected.dtype is not None and tensor.dtype not in (None, expected.dtype):
        yield f"dtype {expected.dtype.value} and not {tensor.dtype and tensor.dtype.value}"
    if expected.layout is not None and tensor.layout not in (None, expected.layout):
        yield f"layout {expected.layout!r} and not {tensor.layout!r}"


def _shown(shape: Sequence[int | Symbol | None]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
