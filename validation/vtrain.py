"""Iteration times that vTrain's authors measured, predicted from those at one layout of a model."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO

import numpy as np

from service.core.estimates.iteration import plan_iteration
from service.core.estimates.simulation import simulate_plan
from service.core.models.dtypes import DType
from service.core.models.graph import Model, Symbol
from service.core.plans.gradient_reduction import GradientReduction
from service.core.plans.plan import Degrees, Partition, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, Training
from service.core.profiles.measurement import Recompute
from service.core.topology.cluster import Cluster
from service.core.units import exact_seconds, to_seconds
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.documents.model import (
    LayerDocument,
    ModelDocument,
    ParameterDocument,
    TensorDocument,
)
from service.formats.documents.profile import MeasurementDocument, ProfileDocument
from validation.rows import Files, Row, Section, within
from validation.small_clusters import shared_nic_hosts

__all__ = ["SECTIONS"]

_FOLDER = "profiles/vTrain"

# The layout (tensor, data, pipeline) of each model whose rows are fitted: few stages, and many
# microbatch sizes.
FITTED = {"3.6": (1, 64, 1), "18.4": (8, 32, 1), "39.1": (8, 32, 2), "175": (8, 8, 8)}

# All-reduces of a block in each pass, over all of what a layer hands on; forward, its repetition
# and backward are passes.
_REDUCTIONS_OF_PASS = 2
_PASSES = 3
_ELEMENT_BYTES = 2

# Of a fit: how near it comes, in how many steps at most.
_CLOSE, _STEPS = 1e-5, 6


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run; sizes in samples and tokens."""

    model: str
    global_batch_size: int
    microbatch_size: int
    hidden: int
    layers: int
    sequence_length: int
    tensor: int
    data: int
    pipeline: int
    milliseconds: str

    @property
    def devices(self) -> int:
        """All of them, eight on a host."""
        return self.tensor * self.data * self.pipeline

    @property
    def layout(self) -> tuple[int, int, int]:
        """Tensor, data and pipeline degree."""
        return self.tensor, self.data, self.pipeline

    @property
    def payload_bytes(self) -> int:
        """Of the activations that one block hands to the next."""
        return self.microbatch_size * self.sequence_length * self.hidden * _ELEMENT_BYTES

    def __str__(self) -> str:
        layout = f"tensor {self.tensor}, data {self.data}, pipeline {self.pipeline}"
        return f"{self.model} B, {layout}, microbatch {self.microbatch_size}"


@dataclass(frozen=True, slots=True)
class BlockTime:
    """Seconds of one block for one microbatch: all passes, the reductions of tensor ranks apart."""

    compute: float
    reductions: float


class Reductions:
    """Measured all-reduces of 2 and of 8 GPUs of a host, by size."""

    def __init__(self, files: Files) -> None:
        """Read the two tables: bytes and nanoseconds."""
        self._tables = {count: self._read(files, count) for count in (2, 8)}

    @staticmethod
    def _read(files: Files, count: int) -> np.ndarray:
        text = files.read(f"{_FOLDER}/trace/a100/AR_GPU{count}_1M_1024M_LUT").decode()
        _, *lines = csv.reader(StringIO(text))
        return np.array([(float(line[0]), float(line[3])) for line in lines]).T

    def of_block(self, run: Run) -> float:
        """Seconds of all passes of one block; 4 GPUs are taken to need as long as 8."""
        if run.tensor == 1:
            return 0.0
        sizes, nanoseconds = self._tables[2 if run.tensor == 2 else 8]
        one = float(np.interp(run.payload_bytes, sizes, nanoseconds)) * 1e-9
        return _PASSES * _REDUCTIONS_OF_PASS * one


def _read_runs(files: Files) -> list[Run]:
    text = files.read(f"{_FOLDER}/data/ground_truth_multi.csv").decode("utf-8-sig")
    _, *lines = csv.reader(StringIO(text))
    runs = []
    for name, _, batch, microbatch, hidden, _, *sizes, milliseconds in lines:
        layers, length, tensor, data, pipeline = map(int, sizes)
        runs.append(
            Run(
                name,
                int(batch),
                int(microbatch),
                int(hidden),
                layers,
                length,
                tensor,
                data,
                pipeline,
                milliseconds,
            )
        )
    return runs


def _model(run: Run) -> Model:
    """Equal blocks, each of which hands on one tensor: 12 h^2 + 13 h weights in each."""
    hidden = TensorDocument(
        name="hidden",
        producer="block",
        consumers=["block"],
        shape=[Symbol.SEQUENCE, Symbol.MICROBATCH, run.hidden],
        dtype=DType.FP16,
    )
    count = 12 * run.hidden**2 + 13 * run.hidden
    weights = ParameterDocument(name="weights", count=count, dtype=DType.FP16)
    blocks = LayerDocument(name="block", kind="block", repeat=run.layers, parameters=[weights])
    return models.to_core(ModelDocument(layers=[blocks], tensors=[hidden]))


@cache
def _cluster(devices: int) -> Cluster:
    """Hosts of eight A100 and four NICs, so many devices in all."""
    return shared_nic_hosts(devices // 8)


def _seconds(run: Run, block: BlockTime) -> tuple[float, float]:
    """The iteration of a run as a plan, and the part of it that is the schedule's.

    Equal stages of whole blocks under 1F1B, everything recomputed: a forward, its repetition and
    half a backward take alike.
    """
    forward = block.compute / 4
    measured = MeasurementDocument(
        layer="block.*",
        microbatch_size=run.microbatch_size,
        sequence_length=run.sequence_length,
        tensor_parallel=run.tensor,
        recompute=Recompute.FULL,
        forward_seconds=forward,
        backward_seconds=2 * forward,
        recompute_seconds=forward,
        tensor_parallel_communication_seconds=block.reductions / _PASSES,
    )
    plan = Plan(
        degrees=Degrees(
            run.pipeline, tensor=run.tensor, data=run.data, sequence_parallel=run.tensor > 1
        ),
        workload=Workload(
            run.global_batch_size // run.microbatch_size // run.data,
            microbatch_size=run.microbatch_size,
            sequence_length=run.sequence_length,
        ),
        schedule=Schedule("1f1b"),
        model="model@1",
        profile="profile@1",
        topology="cluster@1",
        partition=Partition(layers_per_stage=(run.layers // run.pipeline,) * run.pipeline),
        recompute=Recompute.FULL.value,
        training=Training(Optimizer.ADAM, gradient_reduction=GradientReduction()),
    )
    profile = profiles.to_core(ProfileDocument(measurements=[measured]))
    resolved = resolve(plan, cluster=_cluster(run.devices), model=_model(run), profile=profile)
    simulated = simulate_plan(resolved)
    iteration = plan_iteration(simulated).picoseconds
    if iteration is None:
        raise ValueError("1f1b is drained")
    return (
        exact_seconds(iteration),
        to_seconds(simulated.timeline.makespan),
    )


def _fit(runs: Sequence[Run], reductions: Reductions) -> dict[tuple[str, int], BlockTime]:
    """The time of a block by model and microbatch size, from the rows at the fitted layouts.

    What an iteration has beside its schedule hardly follows the time of a block, and the schedule
    is nearly in proportion to it, so a few steps suffice.
    """
    fitted = {}
    for run in runs:
        if run.layout != FITTED[run.model]:
            continue
        target, known = float(run.milliseconds) / 1000, reductions.of_block(run)
        turns = run.global_batch_size // run.microbatch_size // run.data + run.pipeline - 1
        whole = target * run.pipeline / run.layers / turns
        for _ in range(_STEPS):
            iteration, schedule = _seconds(run, BlockTime(whole - known, known))
            if abs(iteration / target - 1) < _CLOSE:
                break
            whole *= (target - (iteration - schedule)) / schedule
        fitted[run.model, run.microbatch_size] = BlockTime(whole - known, known)
    return fitted


def _predicted(files: Files, *, same_tensor: bool) -> Iterator[Row]:
    """The rows of the fitted tensor degree, or of others."""
    for run, milliseconds in _predictions(files):
        if (run.tensor == FITTED[run.model][0]) == same_tensor:
            yield Row(f"{run}", run.milliseconds, milliseconds, _EXEMPT.get(_key(run), ""))


@cache
def _predictions(files: Files) -> tuple[tuple[Run, float], ...]:
    """Every other row whose microbatch size was fitted, and our milliseconds of it."""
    runs, reductions = _read_runs(files), Reductions(files)
    fitted, found = _fit(runs, reductions), []
    for run in runs:
        block = fitted.get((run.model, run.microbatch_size))
        if block is not None and run.layout != FITTED[run.model]:
            compute = block.compute * FITTED[run.model][0] / run.tensor
            ours, _ = _seconds(run, BlockTime(compute, reductions.of_block(run)))
            found.append((run, 1000 * ours))
    return tuple(found)


def _key(run: Run) -> tuple[str, tuple[int, int, int], int]:
    return run.model, run.layout, run.microbatch_size


_ACROSS_HOSTS = (
    "sixteen tensor ranks are on two hosts, and the table of reductions is of one: their traffic "
    "over the network is not represented."
)
_SMALL_WORK = (
    "two samples on four ranks or on eight leave so little work a kernel that its launch "
    "counts, and the time of a block does not fall with the degree as it is taken to."
)
_SLOWER_THAN_ITS_LIKES = (
    "measured half as long again as tensor 4 on as many devices, and (2, 32, 8) longer with two "
    "samples than with three: what held these runs up, the table does not tell."
)
_EXEMPT: Mapping[tuple[str, tuple[int, int, int], int], str] = {
    **{("3.6", (16, 4, 1), size): _ACROSS_HOSTS for size in (2, 4, 8)},
    ("18.4", (16, 16, 1), 2): _ACROSS_HOSTS,
    ("3.6", (4, 16, 1), 2): _SMALL_WORK,
    ("3.6", (8, 8, 1), 2): _SMALL_WORK,
    ("39.1", (2, 16, 16), 2): _SLOWER_THAN_ITS_LIKES,
    ("39.1", (2, 16, 16), 3): _SLOWER_THAN_ITS_LIKES,
    ("39.1", (2, 32, 8), 2): _SLOWER_THAN_ITS_LIKES,
}

_SOURCE = (
    "`data/ground_truth_multi.csv` of VIA-Research/vTrain: Megatron-DeepSpeed on 64 to 512 A100; "
    "`trace/a100` for all-reduces inside a host."
)

SECTIONS = (
    Section(
        name="vtrain_layouts",
        title="Measured iterations, other data and pipeline degrees",
        source=_SOURCE,
        text="""
The time of a block for each microbatch size is fitted to the rows of one layout of each model
(tensor, data, pipeline): 3.6 B (1, 64, 1), 18.4 B (8, 32, 1), 39.1 B (8, 32, 2), 175 B (8, 8, 8).
The other rows of the same tensor degree are then plans of equal stages under `1f1b`, with
everything recomputed, and nothing else is fitted. Hosts have eight A100 on an NVSwitch and four
NICs of 200 Gb/s, as vTrain's own settings have it (800 Gb/s a host); what crosses a cut is spread
over the tensor ranks, and fp16 gradients are reduced as rings over the replicas, one for each NIC
that their ranks have, each stage's once they are complete. Not represented: embedding and head, and
the optimizer's step, which a fit takes for work of blocks. That share of an iteration differs with
the number of microbatches and stages, so ours tends to be too long where the fit has few
microbatches (twelve samples: four) and too short where it has many.
""",
        what="model, layout and samples",
        unit="ms",
        rule=within(
            0.08,
            "what the fit takes for work of blocks, and is not, is some percent of an iteration. A "
            "microbatch size that the fitted layout lacks is not predicted.",
        ),
        rows_of_files=lambda files: tuple(_predicted(files, same_tensor=True)),
    ),
    Section(
        name="vtrain_tensor",
        title="Measured iterations, other tensor degrees",
        source=_SOURCE,
        text="""
The same fit for another tensor degree: the compute of a block is taken to fall in proportion to it,
and its six all-reduces (two in each of forward, repetition and backward) to take what the table of
measured ones says; four GPUs are taken to need as long as eight.
""",
        what="model, layout and samples",
        unit="ms",
        rule=within(
            0.20,
            "how well matrices of another width do is not known of one degree, and this is about "
            "what they differ by.",
        ),
        rows_of_files=lambda files: tuple(_predicted(files, same_tensor=False)),
    ),
)
