"""Every published file of costs that is at hand: read with its true counts, or refused for why."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.app.file_formats import choose_format, read_file
from service.app.profile_formats import PROFILE_FORMATS
from service.core.errors import InvalidInput
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.profile_look_alikes import PROFILE_LOOK_ALIKES
from service.formats.profile_reading import ProfileReading, Stated

PROFILES = Path(__file__).resolve().parents[3] / "shared" / "data" / "profiles"

pytestmark = pytest.mark.skipif(not PROFILES.is_dir(), reason="no published profiles at hand")

PIPEDREAM = "pipedream/profiler/image_classification/profiles"
PLACED = "dnn-partitioning/throughput-inputs"
GALVATRON = "Hetu-Galvatron/galvatron"
MODEL_CONFIGS = f"{GALVATRON}/models/gpt/configs"
HARDWARE = f"{GALVATRON}/profile_hardware/hardware_configs"

# Path, format, and some of its facts. Nodes and edges of dnn-partitioning and its time on one
# device (bert24_inference 92.406 ms) are the published ones.
READ: list[tuple[str, str, dict[str, Any]]] = [
    (f"{PIPEDREAM}/alexnet/graph.txt", "pipedream", {"layers": 23, "edges": 23}),
    (f"{PIPEDREAM}/resnet50/graph.txt", "pipedream", {"layers": 177, "edges": 193}),
    (f"{PIPEDREAM}/vgg16/graph.txt", "pipedream", {"layers": 41, "edges": 41}),
    (
        "pipedream/profiler/translation/profiles/gnmt/graph.txt",
        "pipedream",
        {"layers": 48, "input_layers": 3},
    ),
    (
        f"{PLACED}/LayerGraphs/bert24_inference.json",
        "dnn_partitioning",
        {"layers": 32, "nodes": 32, "edges": 55, "forward_seconds": pytest.approx(0.092406)},
    ),
    (
        f"{PLACED}/LayerGraphs/bert24_training.json",
        "dnn_partitioning",
        {"layers": 32, "nodes": 64, "backward_nodes": 32, "edges": 110},
    ),
    (
        f"{PLACED}/LayerGraphs/gnmt_inference.json",
        "dnn_partitioning",
        {"layers": 96, "nodes": 96, "edges": 122},
    ),
    (
        f"{PLACED}/LayerGraphs/resnet50_inference.json",
        "dnn_partitioning",
        {"layers": 177, "nodes": 177, "edges": 193},
    ),
    (
        f"{PLACED}/OperatorGraphs/bert_l-3_inference.json",
        "dnn_partitioning",
        {"layers": 128, "nodes": 235, "edges": 250},
    ),
    (
        "piper/inputs/bert32a100.json",
        "piper",
        {"layers": 37, "input_layers": 3, "edges": 67, "measurements": 272},
    ),
    (
        f"{MODEL_CONFIGS}/computation_profiling_bf16_llama2-7b_all.json",
        "galvatron",
        {"shapes": 12, "times": 24, "derived_times": 24},
    ),
]
REFUSED = [
    (f"{PLACED}/OperatorGraphs/bert_l-3_training.json", "without a forward node of its colorClass"),
    (
        f"{MODEL_CONFIGS}/computation_profiling_bf16_llama2-7b_seqlen2048_all.json",
        "no shape with the times of two layer counts",
    ),
    (f"{MODEL_CONFIGS}/memory_profiling_bf16_llama2-7b_all.json", "memory profile of Galvatron"),
    (
        f"{MODEL_CONFIGS}/memory_profiling_bf16_llama2-7b_seqlen2048_all.json",
        "memory profile of Galvatron",
    ),
    (
        f"{MODEL_CONFIGS}/galvatron_config_llama2-7b_1nodes_8gpus_per_node_36GB_bf16.json",
        "plan of Galvatron",
    ),
    *(
        (f"{HARDWARE}/allreduce_bandwidth_{nodes}_per_node.json", "all-reduce benchmarks")
        for nodes in ("1nodes_4gpus", "1nodes_8gpus", "2nodes_8gpus")
    ),
    *(
        (f"{HARDWARE}/p2p_bandwidth_{nodes}_per_node.json", "point-to-point rates")
        for nodes in ("1nodes_4gpus", "1nodes_8gpus", "2nodes_8gpus")
    ),
    (f"{HARDWARE}/sp_time_1nodes_8gpus_per_node.json", "all-reduce benchmarks"),
    (f"{HARDWARE}/overlap_coefficient.json", "overlaps communication"),
    ("vTrain/data/ground_truth_multi.csv", "iteration times of whole runs"),
    ("vTrain/trace/a100/AR_GPU2_1M_1024M_LUT", "benchmark of collectives"),
    ("vTrain/trace/a100/AR_GPU8_1M_1024M_LUT", "benchmark of collectives"),
    *(
        (f"dnn-partitioning/human-experts/{name}_expert.json", "split of dnn-partitioning")
        for name in ("bert24_inference", "bert24_training", "gnmt_inference")
    ),
    *(
        (f"dnn-partitioning/optimal-splits/{name}.json", "split of dnn-partitioning")
        for name in (
            "LayerGraphs_bert24_inference",
            "LayerGraphs_bert24_training",
            "LayerGraphs_gnmt_inference",
            "LayerGraphs_resnet50_inference",
            "OperatorGraphs_bert_l-3_inference",
            "OperatorGraphs_bert_l-3_training",
        )
    ),
]
# Files that tell of the others.
NOTES = {"LICENSE", "LICENSE.txt", "SOURCE.txt", "README.md"}


def read(name: str) -> tuple[str, ProfileReading]:
    content = (PROFILES / name).read_bytes()
    chosen = choose_format(PROFILE_FORMATS, content, None, PROFILE_LOOK_ALIKES)
    return chosen.name, read_file(chosen, content, Stated(**chosen.needs))


def test_every_file_is_in_a_table() -> None:
    present = {
        str(path.relative_to(PROFILES))
        for path in PROFILES.rglob("*")
        if path.is_file() and path.name not in NOTES
    }
    assert present == {name for name, *_ in READ} | {name for name, _ in REFUSED}


@pytest.mark.parametrize(("name", "format_name", "facts"), READ)
def test_it_is_read_with_its_true_counts(
    name: str, format_name: str, facts: dict[str, Any]
) -> None:
    found, reading = read(name)
    assert found == format_name
    assert {key: reading.facts[key] for key in facts} == facts
    profile = profiles.to_core(reading.profile)
    if reading.model is not None:
        model = models.to_core(reading.model)
        costly = [layer.name for layer in model.layers if not layer.is_input]
        assert {measurement.layer for measurement in profile.measurements} == set(costly)


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_it_is_refused_for_the_true_reason(name: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read(name)


def split_of(name: str) -> dict[int, int]:
    """The device of each node in a published optimal split; the CPU is -1."""
    path = PROFILES / "dnn-partitioning" / "optimal-splits" / f"{name.replace('/', '_')}.json"
    split = json.loads(path.read_bytes())
    devices = [(-1, split["cpus"][0]["nodes"])]
    devices += [(place, each["nodes"]) for place, each in enumerate(split["fpgas"])]
    return {node: place for place, nodes in devices for node in nodes}


@pytest.mark.parametrize(
    "name",
    [
        "LayerGraphs/bert24_inference",
        "LayerGraphs/bert24_training",
        "LayerGraphs/gnmt_inference",
        "OperatorGraphs/bert_l-3_inference",
    ],
)
def test_no_published_optimal_split_cuts_a_layer(name: str) -> None:
    """What was joined into a layer stands on one device, and tensors go one way between devices."""
    _, reading = read(f"{PLACED}/{name}.json")
    assert reading.model is not None
    graph = json.loads((PROFILES / PLACED / f"{name}.json").read_bytes())
    ids = {node["name"]: node["id"] for node in graph["nodes"]}
    device = split_of(name)
    of_layer = {}
    for layer in reading.model.layers:
        assert isinstance(layer.description, str)
        on = {device[ids[title]] for title in layer.description.split(", ")}
        assert len(on) == 1, layer.name
        of_layer[layer.name] = on.pop()
    ways = {
        (of_layer[str(tensor.producer)], of_layer[consumer])
        for tensor in reading.model.tensors
        for consumer in tensor.consumers
    }
    assert not any((target, source) in ways for source, target in ways if source != target)


@pytest.mark.parametrize(
    "name",
    ["LayerGraphs/bert24_inference", "LayerGraphs/bert24_training", "LayerGraphs/gnmt_inference"],
)
def test_published_loads_are_the_costs_of_layers_and_what_leaves_and_enters(name: str) -> None:
    """By that planner's rule: what leaves a device once a node, what enters it once a node, forward
    and backward. The times of layers are ours, the costs of edges the file's.
    """
    _, reading = read(f"{PLACED}/{name}.json")
    assert reading.model is not None
    graph = json.loads((PROFILES / PLACED / f"{name}.json").read_bytes())
    ids = {node["name"]: node["id"] for node in graph["nodes"]}
    device = split_of(name)
    costs = {(edge["sourceId"], edge["destId"]): edge["cost"] for edge in graph["edges"]}
    loads = dict.fromkeys(set(device.values()), 0.0)
    seconds = {row.layer: row for row in reading.profile.measurements}
    for layer in reading.model.layers:
        assert isinstance(layer.description, str)
        row = seconds[layer.name]
        backward = 0.0 if row.backward_seconds is msgspec.UNSET else row.backward_seconds
        place = device[ids[layer.description.split(", ")[0]]]
        loads[place] += 1000 * (row.forward_seconds + backward)
    passed = set()
    for (source, target), cost in costs.items():
        if device[source] != device[target]:
            passed |= {(device[source], source, cost), (device[target], source, cost)}
    for place, _, cost in passed:
        loads[place] += cost
    path = PROFILES / "dnn-partitioning" / "optimal-splits" / f"{name.replace('/', '_')}.json"
    split = json.loads(path.read_bytes())
    for place, each in enumerate(split["fpgas"]):
        assert loads[place] == pytest.approx(each["load"], rel=1e-12)
