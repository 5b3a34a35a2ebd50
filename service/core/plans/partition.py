"""From the three ways to write a partition to the stage of each layer."""

from collections.abc import Sequence

from service.core.errors import Fault, FaultCode, InvalidInput, some_of
from service.core.models.graph import Model
from service.core.plans.plan import Partition, TiedParameters

__all__ = ["assign_layers", "check_partition", "layers_by_stage"]


def check_partition(partition: Partition, stages: int, chunks: int = 1) -> list[Fault]:
    """What is wrong with a partition into `stages` stages, `chunks` a rank, whatever the model."""
    forms = {
        "layers_per_stage": partition.layers_per_stage,
        "cuts": partition.cuts,
        "stages": partition.stages,
    }
    given = [name for name, value in forms.items() if value is not None]
    if len(given) != 1:
        code = FaultCode.EXCLUSIVE_FIELDS if given else FaultCode.MISSING_FIELD
        found = " and ".join(given) or "none"
        detail = f"give exactly one of layers_per_stage, cuts and stages; got {found}"
        return [Fault(code, ("partition",), detail)]
    if partition.cuts is not None:
        return _check_cuts(partition.cuts, stages, chunks)
    faults = []
    sizes: Sequence[int] = partition.layers_per_stage or ()
    if partition.stages is not None:
        sizes = [len(names) for names in partition.stages]
    if len(sizes) != stages:
        of = f"{stages} stages (pipeline x chunks_per_rank{_multiple(len(sizes), chunks)})"
        detail = f"one entry for each of {of}; {len(sizes)} given"
        faults.append(Fault(FaultCode.WRONG_LENGTH, ("partition", given[0]), detail))
    for stage, size in enumerate(sizes):
        if size < 1:
            path = ("partition", given[0], stage)
            detail = f"stage {stage} is left without a layer; each takes at least one"
            faults.append(Fault(FaultCode.EMPTY_STAGE, path, detail))
    return faults


def _multiple(stages: int, chunks: int) -> str:
    return f", so a multiple of {chunks}" if stages % chunks else ""


def _check_cuts(cuts: Sequence[int], stages: int, chunks: int) -> list[Fault]:
    faults = []
    if len(cuts) != stages - 1:
        of = f"{stages} stages (pipeline x chunks_per_rank{_multiple(len(cuts) + 1, chunks)})"
        detail = f"{of} have {stages - 1} cuts between them; {len(cuts)} given"
        faults.append(Fault(FaultCode.WRONG_LENGTH, ("partition", "cuts"), detail))
    for index, (before, cut) in enumerate(zip((0, *cuts), cuts, strict=False)):
        if cut <= before:
            detail = f"stage {index} is left without a layer; this cut lies above {before}"
            faults.append(Fault(FaultCode.EMPTY_STAGE, ("partition", "cuts", index), detail))
    return faults


def assign_layers(partition: Partition, model: Model, stages: int) -> tuple[int, ...]:
    """The stage of each layer, by position in execution order.

    `partition` has passed `check_partition`. Stages are down-sets of the graph: no tensor goes to
    an earlier stage. Layers that share a weight stand on one stage, unless the partition asks for
    copies of it.

    Raises `InvalidInput` with every fault, paths into a plan document.
    """
    layers = len(model.layers)
    if stages > layers:
        detail = f"{stages} stages need at least as many layers; the model has {layers}"
        raise InvalidInput([Fault(FaultCode.TOO_FEW_LAYERS, ("parallelism", "pipeline"), detail)])
    if partition.stages is not None:
        stage_of_layer = _by_names(partition.stages, model)
    else:
        stage_of_layer = _by_counts(partition, layers)
    faults = _backward_tensors(model, stage_of_layer)
    if partition.tied_parameters is TiedParameters.REFUSE:
        faults += _split_weights(model, stage_of_layer)
    if faults:
        raise InvalidInput(faults)
    return stage_of_layer


def layers_by_stage(stage_of_layer: Sequence[int]) -> list[list[int]]:
    """The layers of each stage, by position in execution order."""
    layers: list[list[int]] = [[] for _ in range(max(stage_of_layer) + 1)]
    for position, stage in enumerate(stage_of_layer):
        layers[stage].append(position)
    return layers


def _by_counts(partition: Partition, layers: int) -> tuple[int, ...]:
    if partition.layers_per_stage is not None:
        counts: Sequence[int] = partition.layers_per_stage
        if sum(counts) != layers:
            detail = f"the model has {layers} layers; these are {sum(counts)}"
            path = ("partition", "layers_per_stage")
            raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, path, detail)])
    else:
        cuts = partition.cuts or ()
        if cuts and cuts[-1] >= layers:
            # Cuts ascend, so the first that lies too far leaves its own stage without a layer.
            index = next(index for index, cut in enumerate(cuts) if cut >= layers)
            path_to_cut = ("partition", "cuts", index)
            detail = f"the model has {layers} layers: a cut lies below that, or stages stay empty"
            raise InvalidInput([Fault(FaultCode.EMPTY_STAGE, path_to_cut, detail)])
        ends = (*cuts, layers)
        counts = [end - start for start, end in zip((0, *cuts), ends, strict=True)]
    return tuple(stage for stage, count in enumerate(counts) for _ in range(count))


def _by_names(stages: Sequence[Sequence[str]], model: Model) -> tuple[int, ...]:
    faults = []
    stage_of: dict[str, int] = {}
    for stage, names in enumerate(stages):
        for index, name in enumerate(names):
            path = ("partition", "stages", stage, index)
            if name not in model.positions:
                detail = f"the model has no layer {name!r}"
                faults.append(Fault(FaultCode.UNKNOWN_NAME, path, detail))
            elif name in stage_of:
                detail = f"layer {name!r} stands on stage {stage_of[name]} already"
                faults.append(Fault(FaultCode.DUPLICATE_NAME, path, detail))
            else:
                stage_of[name] = stage
    left = [layer.name for layer in model.layers if layer.name not in stage_of]
    if left:
        detail = f"each layer stands on one stage; missing: {some_of(left)}"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("partition", "stages"), detail))
    if faults:
        raise InvalidInput(faults)
    return tuple(stage_of[layer.name] for layer in model.layers)


def _backward_tensors(model: Model, stage_of_layer: Sequence[int]) -> list[Fault]:
    faults = []
    for tensor, producer, consumers in zip(
        model.tensors, model.producers, model.consumers, strict=True
    ):
        if producer is None:
            continue
        source = stage_of_layer[producer]
        for consumer in consumers:
            if stage_of_layer[consumer] < source:
                detail = (
                    f"tensor {tensor.name!r} would go from {model.layers[producer].name!r} on "
                    f"stage {source} back to {model.layers[consumer].name!r} on stage "
                    f"{stage_of_layer[consumer]}; tensors go to the same or a later stage"
                )
                faults.append(Fault(FaultCode.INCONSISTENT, ("partition",), detail))
    return faults


def _split_weights(model: Model, stage_of_layer: Sequence[int]) -> list[Fault]:
    faults = []
    for weight in model.weights:
        first = weight.layers[0]
        stages = (stage_of_layer[layer] for layer in weight.layers)
        other = next(
            (
                layer
                for layer, stage in zip(weight.layers, stages, strict=True)
                if stage != stage_of_layer[first]
            ),
            None,
        )
        if other is not None:
            detail = (
                f"layers {model.layers[first].name!r} on stage {stage_of_layer[first]} and "
                f"{model.layers[other].name!r} on stage {stage_of_layer[other]} hold the same "
                f"weight ({weight.label}): put them on one stage, or ask for a copy on each with "
                "`partition.tied_parameters` `duplicate`"
            )
            faults.append(Fault(FaultCode.INCONSISTENT, ("partition",), detail))
    return faults
