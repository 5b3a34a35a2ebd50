"""Every published file of costs that is at hand: read with its true counts, or refused for why.

What their plans cost stands in `validation`.
"""

from pathlib import Path
from typing import Any

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
