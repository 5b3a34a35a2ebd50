"""Memory that others have published, beside plans of the same models."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from service.core.memory.static import static_state, whole_weights
from service.core.memory.terms import Term
from service.core.models.dtypes import DType
from service.core.plans.plan import Degrees
from service.core.plans.rank_weights import HeldWeights
from service.core.plans.training import Optimizer, OptimizerSharding, Training
from service.core.profiles.measurement import Recompute
from validation.memory_plans import (
    MEGATRON,
    ZERO,
    bytes_of,
    gpt,
    layer_bytes,
    memory_of,
    mixtral,
    state_bytes,
)
from validation.rows import Row, Section, printed, within

__all__ = ["SECTIONS"]

GIB = 2**30
MIB = 2**20

_SHARDED = replace(MEGATRON, optimizer_sharding=OptimizerSharding.OPTIMIZER)


def _held(elements: int, replicas: int = 1) -> list[HeldWeights]:
    return [HeldWeights(elements, None, 1, replicas)]


def _state(training: Training, sharding: OptimizerSharding, elements: int, ranks: int) -> int:
    trained = replace(training, optimizer_sharding=sharding)
    return static_state(_held(elements, ranks), trained).total


_CHUNKS = (
    "its factor for chunks, 1 + 7/24, multiplies what the embedding keeps too; here the embedding "
    "keeps as much for each microbatch in flight."
)


def _megatron() -> Iterator[Row]:
    split = {"tensor": 8, "sequence_parallel": True}
    selective: dict[str, Any] = {"recompute": Recompute.SELECTIVE}
    memory = memory_of(
        gpt(6144, 64, 48),
        Degrees(1, **split),  # type: ignore[arg-type]
        microbatch_size=4,
        sequence_length=2048,
        **selective,
    )
    yield Row("22 B, tensor 8: weights and optimizer, bytes", "49651605504", state_bytes(memory))
    logits, ids = 4 * 2048 * 4 * 51200 // 8, 8 * 2048 * 4
    found = bytes_of(memory, Term.ACTIVATIONS) - ids + ids // 8 + logits
    yield Row("22 B, tensor 8: activations, MiB", "10022.01", found / MIB)

    model, degrees = gpt(12288, 96, 96), Degrees(8, **split)  # type: ignore[arg-type]
    for chunks, activations in ((1, "9816.02"), (3, "12679.02")):
        memory = memory_of(
            model,
            degrees,
            microbatch_size=1,
            sequence_length=2048,
            microbatches=64,
            chunks=chunks,
            **selective,
        )
        if chunks == 1:
            state = state_bytes(memory) + 18 * 2 * 12288 // 8
            what = "175 B, tensor 8, pipeline 8: weights and optimizer, bytes"
            yield Row(what, "50348611584", state)
        ids = 8 * 2048
        found = bytes_of(memory, Term.ACTIVATIONS) - 8 * (ids - ids // 8)
        which = "" if chunks == 1 else ", three chunks a rank"
        what = f"175 B, tensor 8, pipeline 8{which}: activations, MiB"
        yield Row(what, activations, found / MIB, _CHUNKS if chunks > 1 else "")

    memory = memory_of(
        mixtral(),
        Degrees(4, data=16, expert=8),
        microbatch_size=1,
        sequence_length=4096,
        training=_SHARDED,
    )
    state = state_bytes(memory) + 4096 // 4 * 27 // 4
    what = "Mixtral 8x7B, pipeline 4, data 16, expert 8, distributed optimizer: state, bytes"
    yield Row(what, "20063312640", state)

    small: dict[str, Any] = {"microbatch_size": 2, "sequence_length": 8}
    wide = gpt(16, 8, 2, vocabulary=128, head_size=4)
    yield Row(
        "unit test: state, bytes", "187200", state_bytes(memory_of(wide, Degrees(1), **small))
    )
    memory = memory_of(wide, Degrees(1, data=2), training=_SHARDED, **small)
    yield Row("unit test, distributed optimizer: state, bytes", "124800", state_bytes(memory))
    memory = memory_of(gpt(16, 8, 2, vocabulary=128), Degrees(1), **selective, **small)
    logits = 4 * 16 * 128
    found = bytes_of(memory, Term.ACTIVATIONS) + logits
    yield Row("unit test: activations, bytes", "27008", found)
    # Without sequence parallelism it halves what the ends keep, and adds five per cent.
    ends = 4 * 16 * 16 + logits
    found_without = float((found - ends // 2) * Fraction(21, 20))
    yield Row("unit test, no sequence parallelism: activations, bytes", "23520", found_without)


def _uneven() -> Iterator[Row]:
    memory = memory_of(
        gpt(16, 4, 8, vocabulary=32),
        Degrees(4),
        microbatch_size=1,
        sequence_length=8,
        counts=(2, 2, 2, 5),
    )
    heaviest = max(bytes_of(memory, Term.WEIGHTS, rank) // 2 for rank in range(4))
    yield Row("8 layers as 1, 2, 2, 3: the heaviest stage", "9952", heaviest)


_CUT_OFF = "125.50 is printed as 125: cut off, or from a layer of less than the 32.90 M it names."


def _regimes() -> Iterator[Row]:
    for sharding, published in zip(OptimizerSharding, ("120", "31.4", "16.6", "1.9"), strict=True):
        found = _state(ZERO, sharding, 7_500_000_000, 64)
        yield Row(f"ZeRO, 7.5 B on 64 ranks, sharding {sharding.value}: GB", published, found / 1e9)
    for what, sharding, published in (
        ("ZeRO-2 as documented", OptimizerSharding.OPTIMIZER, "15.93"),
        ("ZeRO-2 as its code is now", OptimizerSharding.GRADIENTS, "11.28"),
    ):
        state = static_state(_held(2_851_000_000, 8), replace(ZERO, optimizer_sharding=sharding))
        found = state.total + state.step_gradients
        yield Row(f"DeepSpeed, 2.851 B on 8 ranks, {what}: GiB", published, found / GIB)
    largest = 2 * whole_weights(_held(32_000_000), ZERO)
    found = _state(MEGATRON, OptimizerSharding.PARAMETERS, 2_851_000_000, 8) + largest
    yield Row("DeepSpeed, 2.851 B on 8 ranks, ZeRO-3: GiB", "6.09", found / GIB)
    yield Row("DeepSpeed, its largest layer of 32 M gathered: GiB", "0.12", largest / GIB)
    weights = whole_weights(_held(2_851_000_000), ZERO)
    what = "DeepSpeed, 2.851 B, ZeRO-2 with the optimizer on the host: GiB"
    yield Row(what, "5.31", weights / GIB)
    shares = whole_weights(_held(2_851_000_000, 8), ZERO, OptimizerSharding.PARAMETERS)
    what = "DeepSpeed, 2.851 B on 8 ranks, ZeRO-3 with the optimizer on the host: GiB"
    yield Row(what, "0.78", (shares + largest) / GIB)
    largest = 2 * whole_weights(_held(32_900_000), ZERO)
    found = _state(MEGATRON, OptimizerSharding.PARAMETERS, 737_670_000, 4) + largest
    yield Row("DeepSpeed, t5-large on 4 ranks, ZeRO-3: MiB", "3291", found / MIB)
    what = "DeepSpeed, t5-large, its largest layer gathered: MiB"
    yield Row(what, "125", largest / MIB, _CUT_OFF)
    shares = whole_weights(_held(737_670_000, 4), ZERO, OptimizerSharding.PARAMETERS)
    what = "DeepSpeed, t5-large on 4 ranks, optimizer on the host: MiB"
    yield Row(what, "477", (shares + largest) / MIB)
    full = Training(Optimizer.ADAM, weight_dtype=DType.FP32)
    bert = static_state(_held(round(413.18 * MIB / 4)), full)
    yield Row("Accelerate, bert-base-cased with Adam in fp32: GiB", "1.61", bert.total / GIB)


# Hidden size, heads, then MiB of a layer on 8 tensor ranks: with sequence parallelism everything
# and selectively recomputed, without it everything, and the inputs of a full recompute.
_PER_LAYER = (
    ("22 B", 6144, 64, ("211", "51", "316", "24")),
    ("175 B", 12288, 96, ("342", "102", "552", "48")),
    ("530 B", 20480, 128, ("490", "170", "840", "80")),
    ("1 T", 25600, 160, ("612.5", "212.5", "1050", "100")),
)


def _activations() -> Iterator[Row]:
    degrees, whole_ends = Degrees(1, tensor=8, sequence_parallel=True), Degrees(1, tensor=8)
    cases = (
        ("sequence parallel", degrees, Recompute.NONE),
        ("sequence parallel, selective recompute", degrees, Recompute.SELECTIVE),
        ("tensor parallel alone", whole_ends, Recompute.NONE),
        ("tensor parallel alone, full recompute", whole_ends, Recompute.FULL),
    )
    for name, hidden, heads, published in _PER_LAYER:
        for (what, of, recompute), value in zip(cases, published, strict=True):
            found = layer_bytes(hidden, heads, of, recompute)
            yield Row(f"{name}, {what}: MiB", value, found / MIB)
    for name, hidden, heads, saved in (
        ("GPT-3 175 B", 12288, 96, "70"),
        ("MT-NLG 530 B", 20480, 128, "65"),
    ):
        whole = layer_bytes(hidden, heads, degrees, Recompute.NONE)
        rest = layer_bytes(hidden, heads, degrees, Recompute.SELECTIVE)
        yield Row(f"{name}, saved by selective recompute: %", saved, 100 * (1 - rest / whole))


def _torchtitan() -> Iterator[Row]:
    plain = replace(MEGATRON, gradient_dtype=DType.BF16)
    held = [_state(plain, OptimizerSharding.PARAMETERS, 8_030_000_000, n) for n in (8, 128)]
    what = "Llama-3 8B, 8 less 128 ranks of FSDP: GiB"
    yield Row(what, "15.4", (held[0] - held[1]) / GIB)


SECTIONS = (
    Section(
        name="megatron_memory",
        title="Memory by Megatron-LM's report",
        source=(
            "the theoretical memory report of NVIDIA/Megatron-LM at d98e8a6, run on these models; "
            "its unit test `tests/unit_tests/test_theoretical_memory_usage.py`."
        ),
        text="""
Plans of models made from their dimensions: bf16 weights, fp32 gradients, fp32 Adam with a master
copy, 1F1B (interleaved with chunks), scores written down, dropout, selective recompute. What its
report counts otherwise is counted its way here: the final norm spread over the stages, logits once
in fp32 among the activations, token ids shared among tensor ranks; without sequence parallelism it
halves what the ends keep and adds 5 %.
""",
        what="model and layout",
        unit="as named",
        rule=printed("the same parts, each counted alike."),
        rows=lambda: tuple(_megatron()),
    ),
    Section(
        name="memory_regimes",
        title="Weights, gradients and optimizer state by regime",
        source=(
            "Rajbhandari et al. (ZeRO, 2020), figure 1; DeepSpeed's documentation "
            "(`memory.rst`) and `stage_1_and_2.py`, whose GB are GiB; Accelerate's page of its "
            "memory estimator."
        ),
        text="""
Bytes a parameter of each regime times the parameters that the source names, sharded over its
ranks. DeepSpeed's optimizer works on fp32 gradients during its step, which are counted, and its
ZeRO-3 gathers the largest layer twice. With the optimizer on the host, weights in 16 bits stay.
""",
        what="regime",
        unit="as named",
        rule=printed("no more than bytes a parameter."),
        rows=lambda: tuple(_regimes()),
    ),
    Section(
        name="layer_activations",
        title="Activations of a layer",
        source="Korthikanti et al. (arXiv 2205.05198): its formulas, and printed savings.",
        text="""
What one block keeps of a sequence of 2048 on 8 tensor ranks, from plans of two blocks and of one.
Formulas: sbh/t (34 + 5as/h), selectively recomputed 34 sbh/t; without sequence parallelism
sbh (10 + 24/t + 5as/ht), and 2 sbh where only inputs stay.
""",
        what="model and recompute",
        unit="as named",
        rule=printed("the component model has the same parts as its formula."),
        rows=lambda: tuple(_activations()),
    ),
    Section(
        name="uneven_stages",
        title="Uneven stages",
        source=(
            "NVIDIA-NeMo/Megatron-Bridge#5077: 9,952 where an average over stages says 6,792. Its "
            "layers have hidden size 16 and MLPs of 64, its vocabulary 32 words, which both of its "
            "numbers need."
        ),
        text="A plan of eight blocks on four stages, the embedding with the first, norm and head "
        "with the last; tied, so both ends hold it.",
        what="stages",
        unit="parameters",
        rule=printed("a count."),
        rows=lambda: tuple(_uneven()),
    ),
    Section(
        name="torchtitan_memory",
        title="Measured memory of FSDP",
        source="pytorch/torchtitan, `benchmarks/llama3_h100_202412`: 82.4 and 67.0 GiB on H100.",
        text="How much less is held when weights, gradients and Adam's state in 16 bytes a "
        "parameter lie on 128 ranks in place of 8. What else changes with the ranks is not "
        "represented.",
        what="change",
        unit="GiB",
        rule=within(
            0.10, "measured peaks have buffers and fragments in them, which differ from run to run."
        ),
        rows=lambda: tuple(_torchtitan()),
    ),
)
