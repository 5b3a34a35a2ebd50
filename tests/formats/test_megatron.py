"""Megatron-style arguments: models by formula, a launch by hand, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from service.core.errors import FaultCode
from service.core.models.dtypes import DType
from service.core.plans.gradient_reduction import ReductionOverlap
from service.core.profiles.profile import Recompute
from service.formats.documents.model import to_core
from service.formats.documents.plan import PlanDocument
from service.formats.documents.training import GradientReductionDocument, TrainingDocument
from service.formats.megatron import looks_like_megatron, read_megatron
from service.formats.megatron_options import MAX_OPTIONS
from service.formats.model_reading import ModelReading, StatedModel
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

LAUNCH = (Path(__file__).parent / "fixtures" / "models" / "launch.sh").read_bytes()


def read(content: bytes = LAUNCH) -> ModelReading:
    return read_megatron(content, StatedModel())


def read_text(text: str, **stated: Any) -> ModelReading:
    return read_megatron(text.encode(), StatedModel(**stated))


def plan_of(reading: ModelReading) -> PlanDocument:
    assert reading.plan is not None
    return reading.plan


GPT3 = (
    "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 "
    "--max-position-embeddings 2048 --vocab-size 51200 --tensor-model-parallel-size 8 "
    "--pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 1536 "
    "--nproc-per-node 8 --nnodes 8 --fp16"
)


def test_gpt3_is_what_the_formula_says() -> None:
    """P = 12 L h^2 (1 + 13 / 12 h + (V + s) / 12 L h) of Narayanan et al. (arXiv 2104.04473), which
    leaves out the last norm: 174.6 billion.
    """
    reading = read_text(GPT3)
    blocks, hidden, words, positions = 96, 12288, 51200, 2048
    formula = 12 * blocks * hidden**2 + 13 * blocks * hidden + (words + positions) * hidden
    assert reading.facts["parameters"] == formula + 2 * hidden
    assert round(formula / 1e9, 1) == 174.6
    assert to_core(reading.model).parameter_count == formula + 2 * hidden


def test_mixtral_from_arguments_is_mixtral() -> None:
    text = (
        "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
        "--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm "
        "--disable-bias-linear --untie-embeddings-and-output-weights --num-experts 8 "
        "--moe-router-topk 2 --position-embedding-type rope --vocab-size 32000 --bf16"
    )
    reading = read_text(text)
    assert reading.facts["parameters"] == 46_702_792_704
    assert reading.facts["active_parameters"] == pytest.approx(12.88e9, rel=1e-3)


def test_a_launch_by_hand() -> None:
    """A vocabulary of 1000 is padded to 1024, a multiple of 64 x 2. 16 ranks are tensor 2 x
    pipeline 2 x data 4; a batch of 96 is 12 microbatches of 2 on each of 4. Six stages of one block
    each, on 2 ranks 3 chunks; the first has the embedding too, the last norm and head.
    """
    reading = read()
    model, plan = to_core(reading.model), plan_of(reading)
    attention = 64 * 64 + 2 * 64 * 16 + 64 * 64
    dense, mixed = 3 * 64 * 160, 64 * 4 + 4 * 3 * 64 * 96
    blocks = 6 * (attention + 128) + dense + 5 * mixed
    assert model.parameter_count == blocks + 2 * 64 * 1024 + 64
    assert reading.facts["active_parameters"] == model.parameter_count - 5 * 3 * 3 * 64 * 96
    assert model.layers[0].parameters[0].dtype is DType.BF16
    assert plan.workload.microbatches == 12
    assert (plan.workload.microbatch_size, plan.workload.sequence_length) == (2, 128)
    degrees = plan.parallelism
    assert (degrees.pipeline, degrees.tensor, degrees.data, degrees.context) == (2, 2, 4, 1)  # type: ignore[union-attr]
    assert degrees.sequence_parallel is True  # type: ignore[union-attr]
    assert (plan.schedule.kind, plan.schedule.chunks_per_rank) == ("interleaved_1f1b", 3)
    assert plan.partition.layers_per_stage == [2, 1, 1, 1, 1, 3]  # type: ignore[union-attr]
    assert plan.recompute.default is Recompute.SELECTIVE  # type: ignore[union-attr]
    assert "padded to 1024" in " ".join(reading.assumptions)
    assert [(item.line, item.detail.split(":")[0]) for item in reading.left_out] == [
        (16, "--max-position-embeddings"),
        (38, "--lr"),
        (38, "--data-path"),
    ]


def test_arguments_as_json_are_the_same_launch() -> None:
    """As a run writes all its arguments down, defaults included."""
    arguments = {
        "model_type": "ModelType.encoder_or_decoder",
        "world_size": 16,
        "num_layers": 6,
        "hidden_size": 64,
        "ffn_hidden_size": 160,
        "num_attention_heads": 8,
        "kv_channels": 8,
        "group_query_attention": True,
        "num_query_groups": 2,
        "seq_length": 128,
        "max_position_embeddings": 256,
        "swiglu": True,
        "normalization": "RMSNorm",
        "add_bias_linear": False,
        "untie_embeddings_and_output_weights": True,
        "position_embedding_type": "rope",
        "padded_vocab_size": 1024,
        "num_experts": 4,
        "moe_router_topk": 1,
        "moe_layer_freq": [0, 1, 1, 1, 1, 1],
        "moe_ffn_hidden_size": 96,
        "expert_model_parallel_size": 2,
        "expert_tensor_parallel_size": 2,
        "optimizer": "adam",
        "sgd_momentum": 0.9,
        "accumulate_allreduce_grads_in_fp32": True,
        "ddp_bucket_size": None,
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "num_layers_per_virtual_pipeline_stage": 1,
        "sequence_parallel": True,
        "micro_batch_size": 2,
        "global_batch_size": 96,
        "recompute_granularity": "selective",
        "bf16": True,
        "fp16": False,
        "vocab_size": None,
    }
    content = json.dumps(arguments, indent=1).encode()
    assert looks_like_megatron(content)
    reading = read_megatron(content, StatedModel())
    assert reading.model == read().model
    assert reading.plan == read().plan


def test_a_launch_says_how_it_trains() -> None:
    """Beside bf16 weights gradients are in fp32: a bucket of 40 million takes 160 MB. 64 ranks at
    tensor 8 and pipeline 8 are one replica.
    """
    bf16 = GPT3.replace("--fp16", "--bf16")
    half = plan_of(read_text(GPT3)).training
    assert isinstance(half, TrainingDocument)
    assert (half.optimizer, half.gradient_dtype, half.optimizer_sharding) == ("adam", "fp16", UNSET)
    assert half.gradient_reduction == GradientReductionDocument(overlap=ReductionOverlap.NONE)
    sharded = plan_of(
        read_text(f"{bf16} --use-distributed-optimizer --overlap-grad-reduce")
    ).training
    assert isinstance(sharded, TrainingDocument)
    assert (sharded.gradient_dtype, sharded.optimizer_sharding) == ("fp32", "optimizer")
    assert sharded.gradient_reduction == GradientReductionDocument(
        overlap=ReductionOverlap.BUCKETS, bucket_bytes=160_000_000
    )
    narrow = plan_of(read_text(f"{bf16} --grad-reduce-in-bf16 --optimizer sgd")).training
    assert isinstance(narrow, TrainingDocument)
    assert (narrow.gradient_dtype, narrow.optimizer) == ("bf16", "momentum")
    other = read_text(f"{bf16} --optimizer muon")
    assert plan_of(other).training is UNSET
    assert "--optimizer" in " ".join(item.detail for item in other.left_out)


def test_experts_lie_as_the_launch_says() -> None:
    """Over the tensor-parallel ranks like other layers, unless it says over how many."""
    degrees = plan_of(read()).parallelism
    assert (degrees.expert, degrees.expert_tensor) == (2, 2)  # type: ignore[union-attr]
    alone = LAUNCH + b"\ntrain.py --expert-tensor-parallel-size 1\n"
    assert plan_of(read(alone)).parallelism.expert_tensor == 1  # type: ignore[union-attr]
    wide = LAUNCH + b"\ntrain.py --expert-tensor-parallel-size 8\n"
    assert "2 x 8 ranks for experts" in refusal_text(lambda: read(wide))
    assert plan_of(read_text(GPT3)).parallelism.expert is UNSET  # type: ignore[union-attr]


def test_uneven_ends_and_plain_pipelines() -> None:
    base = GPT3.replace("--pipeline-model-parallel-size 8", "--pipeline-model-parallel-size 4")
    assert plan_of(read_text(base)).partition.layers_per_stage == [25, 24, 24, 26]  # type: ignore[union-attr]
    ends = " --decoder-first-pipeline-num-layers 20 --decoder-last-pipeline-num-layers 16"
    assert plan_of(read_text(base)).partition.tied_parameters == "duplicate"  # type: ignore[union-attr]
    untied = plan_of(read_text(base + " --untie-embeddings-and-output-weights"))
    assert untied.partition.tied_parameters is UNSET  # type: ignore[union-attr]
    uneven = plan_of(read_text(base + ends))
    assert uneven.partition.layers_per_stage == [21, 30, 30, 18]  # type: ignore[union-attr]
    assert uneven.parallelism.data == 2  # type: ignore[union-attr]
    assert uneven.workload.microbatches == 768
    assert uneven.schedule.kind == "1f1b"


def test_what_is_not_said_is_assumed_or_asked_for() -> None:
    bare = "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --max-position-embeddings 4"
    assert refusals(lambda: read_text(bare)) == [(FaultCode.MISSING_FIELD, ("vocabulary_size",))]
    reading = read_text(bare + " --micro-batch-size 3 --seq-length 4", vocabulary_size=100)
    assert reading.facts["vocabulary_size"] == 128
    assert to_core(reading.model).layers[0].parameters[0].dtype is DType.FP32
    assert plan_of(reading).workload.microbatches == 1
    said = " ".join(reading.assumptions)
    for words in ("data parallelism 1", "fp32", "--ffn-hidden-size is not given: 32"):
        assert words in said
    named = bare + " --vocab-size 64"
    assert refusals(lambda: read_text(named, vocabulary_size=65)) == [
        (FaultCode.INCONSISTENT, ("vocabulary_size",))
    ]
    assert read_text(named, vocabulary_size=64, dtype=DType.BF16).facts["vocabulary_size"] == 128
    gated = read_text(named.replace("size 8", "size 512") + " --swiglu")
    assert "--ffn-hidden-size is not given: 1344" in " ".join(gated.assumptions)


def test_it_is_recognised_by_its_content() -> None:
    assert looks_like_megatron(LAUNCH)
    assert looks_like_megatron(GPT3.encode())
    assert not looks_like_megatron(b"--num-layers 3")
    assert not looks_like_megatron(b'{"hidden_size": 3}')


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("--num-layers 6 ", "--num-layers six ", "line 9 (--num-layers) is a whole number"),
        ("--num-layers 6 ", "--num-layers ", "line 9 (--num-layers) is a whole number"),
        ("--num-layers 6 ", "--num-layers 10001 ", "at most 10000"),
        ("--num-layers 6 ", "", "does not give --num-layers"),
        ("HIDDEN=64", "", "line 10 gives --hidden-size '$HIDDEN', which the text does not set"),
        ("--swiglu", "--swiglu yes", "line 17 (--swiglu) takes no value"),
        ("--swiglu", "--num_layers 6", "line 17 gives --num_layers again (first on line 9)"),
        ("--num-query-groups 2", "--num-query-groups 3", "divides 8 heads"),
        ("--hidden-size $HIDDEN", "--hidden-size 60", "divides --hidden-size 60"),
        ("RMSNorm", "BatchNorm", "is LayerNorm or RMSNorm"),
        ("--swiglu", "--multi-latent-attention", "latent attention is not read"),
        ("--disable-bias-linear", "", "experts are read without biases"),
        ("--moe-router-topk 1", "--moe-router-topk 5", "at most --num-experts 4"),
        ("[1]*5", "[1]*4", "6 zeros and ones"),
        ("[1]*5", "[2]*5", "6 zeros and ones"),
        ("--bf16", "--bf16 --fp16", "exclude each other"),
        ("--nnodes 2", "--nnodes 3", None),
        ("${GPUS}", "3", "6 ranks are launched, no multiple of"),
        ("=96", "=97", "--global-batch-size 97 is no multiple"),
        ("virtual-pipeline-stage 1", "virtual-pipeline-stage 2", "no multiple of 2 pipeline ranks"),
        ("granularity selective", "granularity some", "is selective or full"),
        ("--sequence-parallel", "--decoder-first-pipeline-num-layers 1", "with virtual stages"),
        ("--sequence-parallel", "--pipeline-model-parallel-layout E", "is not read: give layers"),
        ("--tensor-model-parallel-size 2", "--tensor-model-parallel-size 5000", "at most 4096"),
        ("--hidden-size $HIDDEN", "--hidden-size 800000000", "more than 2^53 - 1"),
    ],
)
def test_what_does_not_fit_is_refused(old: str, new: str, words: str | None) -> None:
    assert old in LAUNCH.decode()
    content = LAUNCH.decode().replace(old, new, 1).encode()
    if words is None:
        assert plan_of(read(content)).parallelism.data == 6  # type: ignore[union-attr]
        assert plan_of(read(content)).workload.microbatches == 8
    else:
        assert words in refusal_text(lambda: read(content))


def test_options_are_bounded() -> None:
    many = [f"--option-{number}" for number in range(MAX_OPTIONS)]
    content = "\n".join([*many, LAUNCH.decode()]).encode()
    assert "beyond the 5000 options" in refusal_text(lambda: read(content))
    values = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
    more = json.dumps({**values, **dict.fromkeys(many, 1)}).encode()
    assert "holds 5003 options" in refusal_text(lambda: read(more))


def test_faults_come_together() -> None:
    content = LAUNCH.decode().replace("size 64", "size x").replace("HIDDEN=64", "HIDDEN=y")
    content = content.replace("--vocab-size 1000", "--vocab-size 0").replace("--num-layers 6", "")
    paths = [path for _, path in refusals(lambda: read(content.encode()))]
    assert paths == [("line", 10), (), ("line", 22)]


def test_no_line_is_without_effect() -> None:
    """But for words around options: what is run, quotes and brackets."""

    def aside(line: str) -> bool:
        return line.startswith("#") or ("--" not in line and "=" not in line) or line.endswith("=(")

    assert lines_without_effect(read, LAUNCH, aside=aside) == []


def test_damaged_files_are_read_or_refused() -> None:
    assert 0 < read_damaged(read, LAUNCH, seed=4) < 300
