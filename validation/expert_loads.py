"""Loads of experts that were recorded from models, and how uneven they are."""

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from service.core.moe.assignments import Assignments, RoutingLevel
from service.core.moe.balance import even_loads
from service.core.moe.capacity import admit
from service.core.moe.imbalance import imbalance
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.placement import contiguous, given
from validation.rows import Files, Row, Section, printed

__all__ = ["RECORDED", "SECTIONS", "layers_of", "measures"]

# Ranges over all layers of the files: busiest expert over mean, busiest of eight ranks over mean,
# and percent of tokens beyond 1.25 times the mean of all.
RECORDED: Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "Mixtral 8x7B, c4": (
        ("mixtral_8x7b_c4",),
        (("1.08", "1.12"), ("1.08", "1.12"), ("0", "0")),
    ),
    "Mixtral 8x7B, GitHub": (
        ("mixtral_8x7b_github",),
        (("1.25", "1.33"), ("1.25", "1.33"), ("0.0", "1.0")),
    ),
    "OLMoE, c4": (("olmoe_c4",), (("2.5", "3.0"), ("1.09", "1.20"), ("4", "11"))),
    "OLMoE, GitHub": (("olmoe_github",), (("4.5", "6.2"), ("1.27", "2.14"), ("13", "38"))),
    "DeepSeek-V2-Lite": (
        ("deepseek_v2_lite_esft_intent", "deepseek_v2_lite_esft_summary"),
        (("2.0", "6.5"), ("1.16", "1.78"), ("7", "30")),
    ),
    "GPT in training, iteration 1": (
        ("smartmoe_gpt_train_iter0001",),
        (("1.4", "1.8"), ("1.09", "1.16"), ("1", "3")),
    ),
    "GPT in training, iterations 1001 and 2501": (
        ("smartmoe_gpt_train_iter1001", "smartmoe_gpt_train_iter2501"),
        (("5.4", "14.7"), ("2.2", "5.0"), ("54", "68")),
    ),
}
_MEASURES = "expert, max/mean", "rank, max/mean", "dropped at 1.25, %"
_LIMIT = Capacity(OverflowPolicy.DROP, 1.25, CapacityScope.GLOBAL)
_EPLB = ("1.2081", "1.2422"), ("2.0833", "2.3806")


def layers_of(files: Files, names: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """(sources, experts) assignments of each layer of some files."""
    found = []
    for name in names:
        for layer in json.loads(files.read(f"expert_loads/{name}.json"))["layers"]:
            rows = layer["matrix"] if "matrix" in layer else [layer["counts"]]
            found.append(np.array(rows, dtype=np.int64))
    return found


def measures(counts: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """Of one layer what `RECORDED` has ranges of."""
    # How many of a token's choices a row has does not matter where all are taken together.
    assignments = Assignments(counts, counts.sum(axis=1), 1, RoutingLevel.SOURCES)
    loads = counts.sum(axis=0)
    ratios = [
        imbalance(rows).max_over_mean or 0.0
        for rows in (loads.astype(float), even_loads(loads, contiguous(len(loads), 8)))
    ]
    return ratios[0], ratios[1], 100 * admit(assignments, _LIMIT).dropped_fraction


def _rows(files: Files) -> Iterator[Row]:
    for title, (names, ranges) in RECORDED.items():
        by_layer = [measures(counts) for counts in layers_of(files, names)]
        for place, (what, (least, most)) in enumerate(zip(_MEASURES, ranges, strict=True)):
            ours = [found[place] for found in by_layer]
            for end, published, value in (("least", least, min(ours)), ("most", most, max(ours))):
                twice = "4.949 became 5.0 by rounding it twice." if published == "5.0" else ""
                if float(published):
                    yield Row(f"{title}: {what}, {end} of a layer", published, value, twice)


def _eplb_rows(files: Files) -> Iterator[Row]:
    example = json.loads(files.read("expert_loads/eplb_readme_example.json"))
    slots = example["published_physical_to_logical"]
    for layer, with_replicas, without in zip(example["layers"], *_EPLB, strict=True):
        loads = np.array(layer["counts"], dtype=np.int64)
        number = layer["layer"]
        listed = [slots[number][two : two + 2] for two in range(0, 16, 2)]
        for what, published, placement in (
            ("as published, 16 replicas", with_replicas, given(12, 8, listed)),
            ("contiguous, none replicated", without, contiguous(12, 8)),
        ):
            ratio = imbalance(even_loads(loads, placement)).max_over_mean or 0.0
            yield Row(f"layer {number}, {what}", published, ratio)


SECTIONS = (
    Section(
        name="expert_loads",
        title="Uneven experts, as models were seen to use them",
        source=(
            "loads recorded in allenai/OLMoE, deepseek-ai/ESFT and thu-pacman/SmartMoE-AE. The "
            "ranges are those that another evaluation of the same files gave."
        ),
        text="""
Busiest expert over the mean, busiest of eight ranks with contiguous experts over the mean, and the
share of assignments beyond 1.25 times the mean of all sources. Shares that are 0 have no row.
""",
        what="model and measure",
        unit="ratio or %",
        rule=printed("both are computed from the same counts."),
        rows_of_files=lambda files: tuple(_rows(files)),
    ),
    Section(
        name="eplb",
        title="A published placement with replicas",
        source="the example in the README of deepseek-ai/EPLB: two layers, eight GPUs, two hosts.",
        text="""
Busiest rank over the mean, the load of an expert divided evenly over its replicas: the ratios
follow from the loads and the placement that are printed there. Our own advice by host is as even,
and where experts need not stay with their group the busiest rank has less.
""",
        what="placement",
        unit="max/mean",
        rule=printed("shares of whole loads, added up."),
        rows_of_files=lambda files: tuple(_eplb_rows(files)),
    ),
)
