"""Every published file of costs that is at hand: read with its true counts, or refused for why."""

import json
from pathlib import Path
from typing import Any

import pytest
from networkx import DiGraph, selfloop_edges, topological_sort

from service.app.file_formats import choose_format, read_file
from service.app.profile_formats import PROFILE_FORMATS
from service.core.errors import InvalidInput
from service.core.plans.loads import LoadRule
from service.core.plans.plan import Degrees, Partition, Plan, Schedule, SkipRouting, Workload
from service.core.plans.resolve import resolve
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
        f"{PLACED}/OperatorGraphs/bert_l-3_training.json",
        "dnn_partitioning",
        {"layers": 138, "nodes": 600, "backward_nodes": 365, "edges": 817},
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


def placed(name: str, reading: ProfileReading) -> dict[str, int]:
    """The device of each layer in the published split: no layer is cut."""
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
    return of_layer


def loads_of(name: str, routing: SkipRouting) -> dict[int, float]:
    """Milliseconds of each device of a published split, priced as a plan of an imported graph."""
    _, reading = read(f"{PLACED}/{name}.json")
    assert reading.model is not None
    of_layer = placed(name, reading)
    model = models.to_core(reading.model)
    ways = DiGraph(
        (of_layer[model.layers[producer].name], of_layer[model.layers[consumer].name])
        for producer, consumers in zip(model.producers, model.consumers, strict=True)
        if producer is not None
        for consumer in consumers
    )
    ways.remove_edges_from(list(selfloop_edges(ways)))
    devices = list(topological_sort(ways))
    plan = Plan(
        degrees=Degrees(pipeline=len(devices)),
        workload=Workload(microbatches=1, microbatch_size=1),
        schedule=Schedule("1f1b" if "training" in name else "forward_only"),
        model="imported",
        profile="imported",
        partition=Partition(
            stages=tuple(
                tuple(layer for layer, on in of_layer.items() if on == device) for device in devices
            ),
            skip_routing=routing,
            load_rule=LoadRule.DNN_PARTITIONING,
        ),
    )
    resolved = resolve(plan, model=model, profile=profiles.to_core(reading.profile))
    assert resolved.loads is not None
    return {devices[load.rank]: load.picoseconds / 1e9 for load in resolved.loads}


@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("LayerGraphs/bert24_inference", 17.7899),
        ("LayerGraphs/bert24_training", 41.7458),
        ("LayerGraphs/resnet50_inference", 33.7747),
        ("LayerGraphs/gnmt_inference", 32.9107),
        ("OperatorGraphs/bert_l-3_inference", 27.9186),
        ("OperatorGraphs/bert_l-3_training", 65.3031),
    ],
)
def test_published_optimal_splits_have_their_loads(name: str, optimum: float) -> None:
    """Of what stands on the CPU the file's own time is no time of an accelerator."""
    loads = loads_of(name, SkipRouting.DIRECT)
    path = PROFILES / "dnn-partitioning" / "optimal-splits" / f"{name.replace('/', '_')}.json"
    for place, each in enumerate(json.loads(path.read_bytes())["fpgas"]):
        assert loads[place] == pytest.approx(each["load"], rel=1e-9)
    assert round(max(loads.values()), 4) == optimum


@pytest.mark.parametrize(
    ("name", "largest"),
    [("OperatorGraphs/bert_l-3_inference", 35.121), ("OperatorGraphs/bert_l-3_training", 79.529)],
)
def test_relayed_through_the_stages_between_they_cost_more(name: str, largest: float) -> None:
    assert round(max(loads_of(name, SkipRouting.RELAY).values()), 3) == largest
