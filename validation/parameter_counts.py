"""Parameter counts of published models, beside those of imported ones."""

import json
from collections.abc import Iterator

from service.core.models.dtypes import DType
from service.formats.documents.model import to_core
from service.formats.hugging_face_config import read_hugging_face_config
from service.formats.megatron import read_megatron
from service.formats.model_reading import StatedModel
from validation.published_models import (
    DEEPSEEK_V2_LITE,
    DEEPSEEK_V3,
    GPT2,
    LLAMA3_8B,
    MIXTRAL,
    OLMOE,
    QWEN3_30B,
    QWEN25_7B,
    llama,
)
from validation.rows import Row, Section, printed, within

__all__ = ["SECTIONS"]

# Elements of the published weights.
COUNTED = (
    ("GPT-2", GPT2, 124_439_808),
    ("Llama-2-7B", llama(4096, 11008, 32, 32, 32, 32000), 6_738_415_616),
    ("Llama-2-13B", llama(5120, 13824, 40, 40, 40, 32000), 13_015_864_320),
    ("Llama-2-70B", llama(8192, 28672, 80, 64, 8, 32000), 68_976_648_192),
    ("Llama-3-8B", LLAMA3_8B, 8_030_261_248),
    ("Llama-3-70B", llama(8192, 28672, 80, 64, 8, 128256), 70_553_706_496),
    ("Mistral-7B", {**LLAMA3_8B, "model_type": "mistral", "vocab_size": 32000}, 7_241_732_096),
    ("Mixtral-8x7B", MIXTRAL, 46_702_792_704),
    ("OLMoE-1B-7B", OLMOE, 6_919_161_856),
    ("Qwen2.5-7B", QWEN25_7B, 7_615_616_512),
    ("Qwen3-30B-A3B", QWEN3_30B, 30_532_122_624),
    ("DeepSeek-V2-Lite", DEEPSEEK_V2_LITE, 15_706_484_224),
    ("DeepSeek-V3", DEEPSEEK_V3, 671_026_419_200),
)
_WITHOUT_EMBEDDING = (
    "the published count leaves out the embedding, 0.21 of these; ours has all that a token meets."
)
# Billions that a token meets, as their authors round them.
ACTIVE = (
    ("Mixtral-8x7B", MIXTRAL, "12.9", ""),
    ("OLMoE-1B-7B", OLMOE, "1.3", ""),
    ("Qwen3-30B-A3B", QWEN3_30B, "3.3", ""),
    ("DeepSeek-V3", DEEPSEEK_V3, "37", ""),
    ("DeepSeek-V2-Lite", DEEPSEEK_V2_LITE, "2.4", _WITHOUT_EMBEDDING),
)
# Layers, hidden size, heads, and billions of parameters.
MEGATRON = (
    (24, 2304, 24, "1.7"),
    (30, 3072, 32, "3.6"),
    (36, 4096, 32, "7.5"),
    (40, 6144, 48, "18.4"),
    (48, 8192, 64, "39.1"),
    (60, 10240, 80, "76.1"),
    (80, 12288, 96, "145.6"),
    (96, 16384, 128, "310.1"),
    (105, 20480, 128, "529.6"),
    (128, 25600, 160, "1008.0"),
)


def _read(config: object) -> tuple[int, int]:
    """Elements of all weights as the model counts them, and those that a token meets."""
    content = json.dumps(config, indent=1).encode()
    reading = read_hugging_face_config(content, StatedModel(dtype=DType.BF16))
    return to_core(reading.model).parameter_count, reading.facts["active_parameters"]


def _counted() -> Iterator[Row]:
    for name, config, published in COUNTED:
        yield Row(name, f"{published}", _read(config)[0])


def _active() -> Iterator[Row]:
    for name, config, published, exempt in ACTIVE:
        yield Row(name, published, _read(config)[1] / 1e9, exempt)


def _megatron() -> Iterator[Row]:
    for blocks, hidden, heads, published in MEGATRON:
        text = (
            f"--num-layers {blocks} --hidden-size {hidden} --num-attention-heads {heads} "
            "--max-position-embeddings 2048 --vocab-size 51200"
        )
        reading = read_megatron(text.encode(), StatedModel())
        what = f"{blocks} layers, hidden {hidden}, {heads} heads"
        yield Row(what, published, to_core(reading.model).parameter_count / 1e9)


SECTIONS = (
    Section(
        name="parameter_counts",
        title="Parameters of published models",
        source="the elements of each model's published weights, as its repository counts them.",
        text="A `config.json` imported, and the elements of all weights of the model that it "
        "makes; a tied weight counts once.",
        what="model",
        unit="elements",
        rule=printed("a count."),
        rows=lambda: tuple(_counted()),
    ),
    Section(
        name="active_parameters",
        title="Active parameters of mixtures",
        source="the cards of the models.",
        text="The same, counting of each mixture as many experts as a token is sent to.",
        what="model",
        unit="10^9 elements",
        rule=within(0.03, "published figures have two digits or three, and some are rounded down."),
        rows=lambda: tuple(_active()),
    ),
    Section(
        name="megatron_models",
        title="Models of the Megatron paper",
        source="Narayanan et al. (arXiv 2104.04473), table 1.",
        text="Megatron-style arguments imported: vocabulary 51,200, 2,048 positions, biases.",
        what="arguments",
        unit="10^9 elements",
        rule=printed("its formula leaves out the last norm alone."),
        rows=lambda: tuple(_megatron()),
    ),
)
