"""Piper's fixed plans: its own rule of time per sample, and the same plans simulated.

The rule (msr-fiddle/piper, NeurIPS 2021) takes every device to compute and to communicate one after
the other. For a stage of d replicas and tensor degree t, in seconds for each microbatch of a batch
of N:

    (sum of timePerSample + sum over cut edges of 2 (bytes + sync bytes) / bandwidth) / d
        + 4 (d - 1) / d x parameter bytes / (N x bandwidth)

where a cut edge counts at both ends, for each consumer again, with the sync bytes of that end, and
2 stands for there and back. The time per sample of a plan is that of its slowest stage.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.core.estimates.cadence import plan_cadence
from service.core.estimates.simulation import simulate_plan
from service.core.models.cuts import SkipRouting
from service.core.plans.plan import Degrees, Partition, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.units import exact_seconds
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.piper import read_piper
from service.formats.profile_reading import Stated
from validation.rows import Files, Row, Section, at_most, printed
from validation.small_clusters import cluster_of

__all__ = ["SECTIONS"]

_FILE = "profiles/piper/inputs/bert32a100.json"
_BANDWIDTH = 162.5 * 2**30  # bytes per second; the file's own is 25e9
_MICROBATCHES = 128  # of a batch; the file's own is 1920
_DEVICES = 64
_RECOMPUTE = "activation recomp"
_BLOCK = "ParallelTransformerLayer"

# (data, tensor, stages) and what its planner prints as time per sample.
PUBLISHED = (
    ((32, 1, 2), "0.0211166"),
    ((16, 1, 4), "0.0212380"),
    ((8, 1, 8), "0.0219414"),
    ((4, 1, 16), "0.0235157"),
    ((2, 1, 32), "0.0267679"),
    ((32, 2, 1), "0.0254526"),
    ((16, 4, 1), "0.0317259"),
    ((8, 8, 1), "0.0478308"),
)


@dataclass(frozen=True, slots=True)
class Edge:
    """Bytes from one node to another."""

    source: int
    target: int
    bytes_sent: float


def equal_split(nodes: Sequence[Mapping[str, Any]], stages: int) -> dict[int, int]:
    """The stage of each node: equally many blocks, what is before them first, the rest last."""
    blocks = [node["id"] for node in nodes if node["name"] == _BLOCK]
    of_stage = len(blocks) // stages
    stage_of = {block: place // of_stage for place, block in enumerate(blocks)}
    for node in nodes:
        stage_of.setdefault(node["id"], stages - 1 if node["id"] > blocks[-1] else 0)
    return stage_of


def time_per_sample(
    nodes: Sequence[Mapping[str, Any]],
    edges: Sequence[Edge],
    stage_of: Mapping[int, int],
    data: int,
    tensor: int,
) -> float:
    """Seconds of a microbatch on the slowest stage, by the rule of this module."""
    runs = {
        node["id"]: next(run for run in node["TMPCs"][str(tensor)] if run["id"] == _RECOMPUTE)
        for node in nodes
    }
    seconds = dict.fromkeys(stage_of.values(), 0.0)
    sent = dict.fromkeys(stage_of.values(), 0.0)
    for node, run in runs.items():
        seconds[stage_of[node]] += run["timePerSample"] / data
        copies = 4 * (data - 1) / data * run["parameterSize"] / _MICROBATCHES
        sent[stage_of[node]] += copies
    for edge in edges:
        ends = stage_of[edge.source], stage_of[edge.target]
        if ends[0] != ends[1]:
            sync = runs[edge.source]["syncTimeBw"][str(edge.target)]
            sent[ends[0]] += 2 * (edge.bytes_sent + sync) / data
            sync = runs[edge.target]["syncTimeFw"][str(edge.source)]
            sent[ends[1]] += 2 * (edge.bytes_sent + sync) / data
    return max(seconds[stage] + sent[stage] / _BANDWIDTH for stage in seconds)


def _by_rule(files: Files) -> Iterator[Row]:
    graph = json.loads(files.read(_FILE))
    edges = [
        Edge(edge["sourceId"], edge["destId"], edge["communicationCost"]) for edge in graph["edges"]
    ]
    for (data, tensor, stages), published in PUBLISHED:
        split = equal_split(graph["nodes"], stages)
        ours = time_per_sample(graph["nodes"], edges, split, data, tensor)
        yield Row(_named(data, tensor, stages), published, ours)


def _simulated(files: Files) -> Iterator[Row]:
    content = files.read(_FILE)
    nodes = json.loads(content)["nodes"]
    read = read_piper(content, Stated(microbatch_size=1, backward_ratio=2.0))
    if read.model is None:
        raise ValueError("the file has a graph")
    model, profile = models.to_core(read.model), profiles.to_core(read.profile)
    names = [f"h/gpu{place}" for place in range(_DEVICES)]
    cluster = cluster_of(names, [(name, "h/switch", _BANDWIDTH) for name in names])
    for (data, tensor, stages), published in PUBLISHED:
        split = equal_split(nodes, stages)
        held = [
            tuple(layer.name for layer in model.layers if split[int(layer.name[4:])] == stage)
            for stage in range(stages)
        ]
        plan = Plan(
            degrees=Degrees(stages, tensor=tensor, data=data),
            workload=Workload(_MICROBATCHES // data, microbatch_size=1),
            schedule=Schedule("1f1b"),
            model="model@1",
            profile="profile@1",
            topology="cluster@1",
            partition=Partition(stages=tuple(held), skip_routing=SkipRouting.DIRECT),
            recompute="full",
        )
        resolved = resolve(plan, cluster=cluster, model=model, profile=profile)
        steady = plan_cadence(simulate_plan(resolved)).steady
        if steady is None:
            raise ValueError("1f1b has a steady state")
        ours = exact_seconds(steady.per_microbatch / data)
        yield Row(_named(data, tensor, stages), published, ours)


def _named(data: int, tensor: int, stages: int) -> str:
    return f"data {data}, tensor {tensor}, stages {stages}"


_SOURCE = (
    "the planner of msr-fiddle/piper on `inputs/bert32a100.json`: 64 devices, 162.5 GiB/s, 128 "
    "microbatches a batch, recompute everywhere, blocks split equally."
)

SECTIONS = (
    Section(
        name="piper_rule",
        title="Piper's plans by its own rule",
        source=_SOURCE,
        text="""
The rule of its paper, written anew in `validation/piper.py`: devices compute and communicate one
after the other, an edge counts once for each consumer at both ends, replicas exchange their weights
by a parameter server once a batch. It is no part of the service, and needs sync bytes that no
profile of the service has.
""",
        what="plan",
        unit="s a sample",
        rule=printed("the rule and its inputs are all there is."),
        rows_of_files=lambda files: tuple(_by_rule(files)),
    ),
    Section(
        name="piper_simulated",
        title="Piper's plans simulated",
        source=_SOURCE,
        text="""
The same file imported and the same plans priced on 64 devices behind one switch: the pace of the
steady state of `1f1b`, divided by the replicas. Compute is the same. Here transfers go on beside
it, a tensor goes to a stage once however many of its layers take it, the attention mask is an
input that each stage loads, and neither weights exchanged between replicas nor what tensor
parallelism adds at a cut is in the pace. The distance is thus what the rule charges for
communication: the more cuts or replicas, the more. Fill and drain, which the rule has not, make a
whole iteration of 128 microbatches longer than 128 of these.
""",
        what="plan",
        unit="s a sample",
        rule=at_most("transfers beside the compute can only shorten what the rule adds up."),
        rows_of_files=lambda files: tuple(_simulated(files)),
    ),
)
