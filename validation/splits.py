"""Optimal splits of dnn-partitioning, beside the loads of the same plans."""

import json
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter

from service.core.models.cuts import SkipRouting
from service.core.models.graph import Model
from service.core.plans.loads import LoadRule
from service.core.plans.plan import Degrees, Partition, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.units import PICOSECONDS_PER_SECOND
from service.formats.dnn_partitioning import read_dnn_partitioning
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.profile_reading import ProfileReading, Stated
from validation.rows import Files, Row, Section, printed, within

__all__ = ["SECTIONS"]

_FOLDER = "profiles/dnn-partitioning"

# Milliseconds of the busiest device, and where tensors pass through every stage between.
BUSIEST = (
    ("LayerGraphs/bert24_inference", "17.7899", ""),
    ("LayerGraphs/bert24_training", "41.7458", ""),
    ("LayerGraphs/resnet50_inference", "33.7747", ""),
    ("LayerGraphs/gnmt_inference", "32.9107", ""),
    ("OperatorGraphs/bert_l-3_inference", "27.9186", "35.121"),
    ("OperatorGraphs/bert_l-3_training", "65.3031", "79.529"),
)
_CPU = -1


def _read(files: Files, name: str) -> tuple[ProfileReading, dict[str, int], list[float]]:
    """The graph imported, the device of each of its layers, and the loads of the accelerators."""
    content = files.read(f"{_FOLDER}/throughput-inputs/{name}.json")
    reading = read_dnn_partitioning(content, Stated(microbatch_size=1))
    if reading.model is None:
        raise ValueError(f"{name} has a graph")
    ids = {node["name"]: node["id"] for node in json.loads(content)["nodes"]}
    split = json.loads(files.read(f"{_FOLDER}/optimal-splits/{name.replace('/', '_')}.json"))
    devices = [(_CPU, split["cpus"][0]["nodes"])]
    devices += [(place, each["nodes"]) for place, each in enumerate(split["fpgas"])]
    device_of = {node: place for place, nodes in devices for node in nodes}
    of_layer = {}
    for layer in reading.model.layers:
        on = {device_of[ids[title]] for title in str(layer.description).split(", ")}
        if len(on) > 1:
            raise ValueError(f"the split cuts {layer.name} of {name}")
        of_layer[layer.name] = on.pop()
    return reading, of_layer, [each["load"] for each in split["fpgas"]]


def _loads(
    name: str, reading: ProfileReading, of_layer: Mapping[str, int], routing: SkipRouting
) -> dict[int, float]:
    """Milliseconds of each device, by the load rule of the plan."""
    model = models.to_core(reading.model)  # type: ignore[arg-type]
    devices = _in_order(model, of_layer)
    plan = Plan(
        degrees=Degrees(len(devices)),
        workload=Workload(1, microbatch_size=1),
        schedule=Schedule("1f1b" if name.endswith("training") else "forward_only"),
        model="model@1",
        profile="profile@1",
        partition=Partition(
            stages=tuple(
                tuple(layer for layer, on in of_layer.items() if on == device) for device in devices
            ),
            skip_routing=routing,
            load_rule=LoadRule.DNN_PARTITIONING,
        ),
    )
    resolved = resolve(plan, model=model, profile=profiles.to_core(reading.profile))
    return {
        devices[load.rank]: 1000 * load.picoseconds / PICOSECONDS_PER_SECOND
        for load in resolved.loads or ()
    }


def _in_order(model: Model, of_layer: Mapping[str, int]) -> list[int]:
    """The devices, each behind those whose tensors it takes."""
    needs: dict[int, set[int]] = {device: set() for device in of_layer.values()}
    for producer, consumers in zip(model.producers, model.consumers, strict=True):
        if producer is not None:
            source = of_layer[model.layers[producer].name]
            for consumer in consumers:
                needs[of_layer[model.layers[consumer].name]].add(source)
    return list(
        TopologicalSorter({on: before - {on} for on, before in needs.items()}).static_order()
    )


def _busiest(files: Files) -> Iterator[Row]:
    for name, straight, relayed in BUSIEST:
        reading, of_layer, _ = _read(files, name)
        for routing, published in ((SkipRouting.DIRECT, straight), (SkipRouting.RELAY, relayed)):
            if published:
                loads = _loads(name, reading, of_layer, routing)
                most = max(load for device, load in loads.items() if device != _CPU)
                yield Row(f"{name}, {routing.value}", published, most)


def _every_device(files: Files) -> Iterator[Row]:
    for name, _, _ in BUSIEST:
        reading, of_layer, published = _read(files, name)
        loads = _loads(name, reading, of_layer, SkipRouting.DIRECT)
        for device, load in enumerate(published):
            yield Row(f"{name}, device {device}", f"{load!r}", loads[device])


_SOURCE = (
    "`throughput-dp` of msr-fiddle/dnn-partitioning (Tarnawski et al., NeurIPS 2020), run on its "
    "`throughput-inputs`; loads in ms."
)
_TEXT = """
Each graph imported, its layers on the devices of the optimal split as `partition.stages`, and the
load of each device by the load rule `dnn_partitioning`: the times of its layers, and the recorded
times of each tensor that leaves it and of each that enters it, one after the other. That is the
planner's rule and no simulation. The CPU, which holds four nodes of resnet50 at times of its own,
is left out.
"""

SECTIONS = (
    Section(
        name="busiest_devices",
        title="Busiest devices of optimal splits",
        source=_SOURCE,
        text=f"{_TEXT.strip()} Where tensors are relayed through each stage between, the same "
        "splits cost more; both kinds of the two operator graphs are rows.",
        what="graph and routing",
        unit="ms",
        rule=printed("the planner's rule on the planner's split."),
        rows_of_files=lambda files: tuple(_busiest(files)),
    ),
    Section(
        name="device_loads",
        title="Loads of all devices of optimal splits",
        source=_SOURCE,
        text=_TEXT,
        what="graph and device",
        unit="ms",
        rule=within(1e-8, "the same sums; ours are of whole picoseconds."),
        rows_of_files=lambda files: tuple(_every_device(files)),
    ),
)
