"""Blocks that are repeated n times, written once: how they are written out into a graph.

Repetition i of a block `block` is the layer `block.i`, or `block.i.attention`, `block.i.mlp` where
the block has several layers, which are written `block.attention` and `block.mlp`. Such a name
without a number stands for the layer in each repetition:

- what it produces, each repetition produces, under the name of the tensor and its number;
- taken inside the block, a tensor goes to the next layer of that name: to one further on in the
  same repetition, else to one in the next repetition, and from the last to none;
- to a layer outside, only the last repetition hands it out;
- what comes from outside goes to the first repetition.

Whatever else passes is written with numbers (`block.3`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.graph import Layer, Parameter, Tensor

__all__ = ["MAX_WRITTEN", "Repeat", "WrittenOut", "write_out"]

# Of a model written out: weights and buffers of repeated layers, and uses of repeated tensors.
MAX_WRITTEN = 200_000


@dataclass(frozen=True, slots=True)
class Repeat:
    """Layers that follow each other `times` times.

    `layers` are those of one repetition, in order, each with its name inside the block; None is the
    name of a block that is one layer.
    """

    name: str
    times: int
    layers: tuple[tuple[str | None, Layer], ...]

    def numbered(self, member: int, repetition: int) -> str:
        """The name of a layer of the block in one repetition."""
        inside = self.layers[member][0]
        return f"{self.name}.{repetition}" + ("" if inside is None else f".{inside}")


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """Layers and tensors one by one, and where in the document each was written.

    `consumer_places[t]` tells at which place of the document's list each consumer of t stands.
    """

    layers: tuple[Layer, ...]
    layer_paths: tuple[Path, ...]
    tensors: tuple[Tensor, ...]
    tensor_places: tuple[int, ...]
    consumer_places: tuple[tuple[int, ...], ...]

    def in_document(self, fault: Fault) -> Fault:
        """A fault of the graph (paths `layers/i` and `tensors/i`), seen from the document."""
        if len(fault.path) < 2:
            return fault
        kind, index, *rest = fault.path
        if not isinstance(index, int):
            return fault
        if kind == "layers":
            return replace(fault, path=(*self.layer_paths[index], *rest))
        if len(rest) > 1 and rest[0] == "consumers" and isinstance(rest[1], int):
            rest[1] = self.consumer_places[index][rest[1]]
        return replace(fault, path=("tensors", self.tensor_places[index], *rest))


def write_out(
    entries: Sequence[Layer | Repeat],
    tensors: Sequence[Tensor],
    *,
    max_layers: int,
    max_tensors: int,
    max_name: int,
) -> WrittenOut:
    """Write repeated blocks out.

    `entries` and `tensors` stand as in the document. Names and links are not checked here but by
    `build_model`, with `in_document` for its faults. Raises `InvalidInput` when the graph would
    have more than `max_layers` or `max_tensors`, names longer than `max_name` characters, or more
    than `MAX_WRITTEN` weights or links.
    """
    members = {
        _bare(entry, member): (entry, member)
        for entry in entries
        if isinstance(entry, Repeat)
        for member in range(len(entry.layers))
    }
    faults = [
        *_too_many(entries, max_layers),
        *_taken(entries),
        *_too_long(entries, tensors, members, max_name),
    ]
    copies = [_copies(tensor, members) for tensor in tensors]
    if sum(copies) > max_tensors:
        detail = f"{sum(copies)} tensors when repeats are written out; at most {max_tensors}"
        faults.append(Fault(FaultCode.WORK_BUDGET, ("tensors",), detail))
    links = sum(
        count * sum(name in members for name in tensor.consumers)
        for count, tensor in zip(copies, tensors, strict=True)
    )
    if links > MAX_WRITTEN:
        detail = f"{links} uses of tensors when repeats are written out; at most {MAX_WRITTEN}"
        faults.append(Fault(FaultCode.WORK_BUDGET, ("tensors",), detail))
    if faults:
        raise InvalidInput(faults)
    layers = list(_layers(entries))
    written = [
        (place, *each) for place, tensor in enumerate(tensors) for each in _tensors(tensor, members)
    ]
    return WrittenOut(
        layers=tuple(layer for layer, _ in layers),
        layer_paths=tuple(path for _, path in layers),
        tensors=tuple(tensor for _, tensor, _ in written),
        tensor_places=tuple(place for place, _, _ in written),
        consumer_places=tuple(places for _, _, places in written),
    )


_Members = dict[str, tuple[Repeat, int]]


def _bare(repeat: Repeat, member: int) -> str:
    inside = repeat.layers[member][0]
    return repeat.name if inside is None else f"{repeat.name}.{inside}"


def _too_many(entries: Sequence[Layer | Repeat], max_layers: int) -> Iterator[Fault]:
    count = sum(e.times * len(e.layers) if isinstance(e, Repeat) else 1 for e in entries)
    if count > max_layers:
        detail = f"{count} layers when repeats are written out; at most {max_layers}"
        yield Fault(FaultCode.WORK_BUDGET, ("layers",), detail)
    weights = sum(
        entry.times * sum(len(layer.parameters) + len(layer.buffers) for _, layer in entry.layers)
        for entry in entries
        if isinstance(entry, Repeat)
    )
    if weights > MAX_WRITTEN:
        detail = f"{weights} weights and buffers when repeats are written out; at most "
        yield Fault(FaultCode.WORK_BUDGET, ("layers",), f"{detail}{MAX_WRITTEN}")


def _taken(entries: Sequence[Layer | Repeat]) -> Iterator[Fault]:
    """A block's name without a number must mean it alone."""
    names = [
        name
        for entry in entries
        for name in (
            {entry.name, *(_bare(entry, member) for member in range(len(entry.layers)))}
            if isinstance(entry, Repeat)
            else {entry.name}
        )
    ]
    counts = Counter(names)
    for index, entry in enumerate(entries):
        if not isinstance(entry, Repeat):
            continue
        if counts[entry.name] > 1:
            detail = f"the name {entry.name!r} of a repeated block is taken by another layer"
            yield Fault(FaultCode.DUPLICATE_NAME, ("layers", index, "name"), detail)
        inside = Counter(name for name, _ in entry.layers)
        for member, (name, _) in enumerate(entry.layers):
            if inside[name] > 1 or (name is not None and counts[_bare(entry, member)] > 1):
                detail = f"the name {_bare(entry, member)!r} is taken by another layer"
                path = ("layers", index, "layers", member, "name")
                yield Fault(FaultCode.DUPLICATE_NAME, path, detail)


def _too_long(
    entries: Sequence[Layer | Repeat],
    tensors: Sequence[Tensor],
    members: _Members,
    max_name: int,
) -> Iterator[Fault]:
    def fault(name: str, path: Path) -> Iterator[Fault]:
        if len(name) > max_name:
            detail = f"written out it is {name[:40]}..., of {len(name)} characters; at most "
            yield Fault(FaultCode.OUT_OF_RANGE, path, f"{detail}{max_name}")

    for index, entry in enumerate(entries):
        if isinstance(entry, Repeat):
            for member, (inside, layer) in enumerate(entry.layers):
                here: Path = (
                    ("layers", index) if inside is None else ("layers", index, "layers", member)
                )
                name = entry.numbered(member, entry.times - 1)
                yield from fault(name, (*here, "name"))
                for place, parameter in enumerate(layer.parameters):
                    written = f"{name}.{parameter.name}"
                    yield from fault(written, (*here, "parameters", place, "name"))
    for place, tensor in enumerate(tensors):
        if tensor.producer in members:
            last = members[tensor.producer][0].times - 1
            yield from fault(f"{tensor.name}.{last}", ("tensors", place, "name"))


def _layers(entries: Sequence[Layer | Repeat]) -> Iterator[tuple[Layer, Path]]:
    for index, entry in enumerate(entries):
        if not isinstance(entry, Repeat):
            yield entry, ("layers", index)
            continue
        for repetition in range(entry.times):
            for member, (inside, layer) in enumerate(entry.layers):
                name = entry.numbered(member, repetition)
                path = ("layers", index) if inside is None else ("layers", index, "layers", member)
                yield replace(layer, name=name, parameters=_weights(layer, name)), path


def _weights(layer: Layer, name: str) -> tuple[Parameter, ...]:
    """Each repetition has weights of its own; a tied group stays one weight."""
    return tuple(replace(each, name=f"{name}.{each.name}") for each in layer.parameters)


def _copies(tensor: Tensor, members: _Members) -> int:
    """In how many repetitions a tensor is handed out."""
    if tensor.producer not in members:
        return 1
    producer = members[tensor.producer][0]
    inside = [name for name in tensor.consumers if name in members and members[name][0] is producer]
    return producer.times if inside or not tensor.consumers else 1


def _tensors(tensor: Tensor, members: _Members) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """Each tensor that one of the document stands for, with the places of its consumers there."""
    if tensor.producer not in members:
        consumers = tuple(_first(name, members) for name in tensor.consumers)
        yield replace(tensor, consumers=consumers), tuple(range(len(consumers)))
        return
    producer, member = members[tensor.producer]
    copies = _copies(tensor, members)
    for repetition in range(producer.times - copies, producer.times):
        taken: list[tuple[str, int]] = []
        for place, name in enumerate(tensor.consumers):
            if name in members and members[name][0] is producer:
                consumer = members[name][1]
                following = repetition if consumer > member else repetition + 1
                if following < producer.times:
                    taken.append((producer.numbered(consumer, following), place))
            elif repetition == producer.times - 1:
                taken.append((_first(name, members), place))
        yield (
            replace(
                tensor,
                name=f"{tensor.name}.{repetition}",
                producer=producer.numbered(member, repetition),
                consumers=tuple(name for name, _ in taken),
                expected=tuple(tensor.expected[place] for _, place in taken if tensor.expected),
            ),
            tuple(place for _, place in taken),
        )


def _first(name: str, members: _Members) -> str:
    if name not in members:
        return name
    repeat, member = members[name]
    return repeat.numbered(member, 0)
