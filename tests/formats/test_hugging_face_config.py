"""Hugging Face configs: a mixture by hand, and what is refused.

Totals of published models stand in `validation`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import FaultCode
from service.core.models.dimensions import Attention, Dimensions, Experts, Mlp, Split
from service.core.models.dtypes import DType
from service.core.models.graph import Model
from service.formats.documents.model import to_core
from service.formats.hugging_face_config import (
    looks_like_hugging_face_config,
    read_hugging_face_config,
)
from service.formats.hugging_face_types import MODEL_TYPES
from service.formats.model_reading import ModelReading, StatedModel
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged
from validation.published_models import (
    DEEPSEEK_V3,
    GPT2,
    LLAMA3_8B,
    MIXTRAL,
    QWEN3_30B,
    llama,
)

MIXTURE = (Path(__file__).parent / "fixtures" / "models" / "mixture.config.json").read_bytes()


def read(content: bytes, dtype: DType | None = None) -> ModelReading:
    return read_hugging_face_config(content, StatedModel(dtype=dtype))


def read_config(config: dict[str, Any], dtype: DType | None = DType.BF16) -> ModelReading:
    return read(json.dumps(config, indent=1).encode(), dtype)


def core(reading: ModelReading) -> Model:
    return to_core(reading.model)


def test_a_mixture_by_hand() -> None:
    """Block 1 alone has experts: every second one does, but for 3, which the list takes out.

    Attention: queries 6 x 4, keys and values 3 x 4, each with a bias, norms over heads of 4.
    """
    reading = read(MIXTURE)
    model = core(reading)
    names = ["block.0", "block.1", "block.2", "block.3"]
    assert [layer.name for layer in model.layers] == ["embedding", *names, "final_norm", "head"]
    attention = 16 * 24 + 24 + 2 * (16 * 12 + 12) + 4 + 4 + 24 * 16 + 16
    dense, mixed = 3 * 16 * 40, 16 * 5 + 5 * 3 * 16 * 12
    counts = [sum(p.count for p in layer.parameters) for layer in model.layers]
    block = attention + 2 * 16
    assert counts == [1600, block + dense, block + mixed, block + dense, block + dense, 16, 1600]
    assert model.parameter_count == sum(counts) - 1600  # embedding and head are one weight
    assert [each.layers for each in model.weights if len(each.layers) > 1] == [(0, 6)]
    assert reading.facts["active_parameters"] == model.parameter_count - 3 * 3 * 16 * 12
    assert model.layers[2].dimensions == Dimensions(
        hidden=16,
        attention=Attention(heads=6, key_value_heads=3, head_size=4),
        feed_forward=Experts(count=5, active=2, each=Mlp(width=12, gated=True)),
    )
    assert model.layers[0].dimensions == Dimensions(hidden=16, embedding_vocabulary=100)
    assert model.layers[6].dimensions == Dimensions(hidden=16, head_vocabulary=100)
    weights = {p.name: p.count for p in model.layers[2].parameters}
    assert weights["block.1.experts.gate.weight"] == 5 * 16 * 12
    splits = {p.name.removeprefix("block.1."): p.split for p in model.layers[2].parameters}
    assert splits["experts.gate.weight"] is Split.EXPERT
    assert splits["router.weight"] is splits["mlp_norm.weight"] is Split.NONE
    assert splits["attention.key.weight"] is Split.TENSOR
    assert weights["block.1.attention.key.bias"] == 12
    assert weights["block.1.router.weight"] == 80
    assert {t.name: t.consumers for t in model.tensors} == {
        "tokens": ("embedding",),
        "labels": ("head",),
        "embedding.output": ("block.0",),
        "block.0.output": ("block.1",),
        "block.1.output": ("block.2",),
        "block.2.output": ("block.3",),
        "block.3.output": ("final_norm",),
        "final_norm.output": ("head",),
        "loss": (),
    }
    said = " ".join(reading.assumptions)
    assert "tied group `embedding`" in said
    assert "bf16" in said
    assert [(item.line, item.detail.split(":")[0]) for item in reading.left_out] == [
        (7, "hidden_act"),
        (17, "sliding_window"),
    ]


def test_equal_blocks_are_written_once() -> None:
    document = read_config(LLAMA3_8B).model
    assert [layer.name for layer in document.layers] == [
        "embedding",
        "block",
        "final_norm",
        "head",
    ]
    assert document.layers[1].repeat == 32
    assert len(core(read_config(LLAMA3_8B)).layers) == 35


def test_the_type_of_weights_is_the_files_or_the_one_stated() -> None:
    config = {**GPT2, "torch_dtype": "float16"}
    assert core(read_config(config, None)).layers[0].parameters[0].dtype is DType.FP16
    other = read_config(config, DType.BF16)
    assert core(other).layers[0].parameters[0].dtype is DType.BF16
    assert ["torch_dtype" in item.detail for item in other.left_out] == [True]
    assert refusals(lambda: read_config(GPT2, None)) == [(FaultCode.MISSING_FIELD, ("dtype",))]


def test_what_is_absent_has_the_default_of_its_class_and_is_told() -> None:
    said = read_config(GPT2).assumptions
    assert "n_inner is absent: 3072" in said
    assert "tie_word_embeddings is absent: true" in said
    own = {**llama(64, 96, 2, 4, 4, 100), "model_type": "qwen3"}
    assert "head_dim is absent: 128" in read_config(own).assumptions
    del own["num_key_value_heads"]
    assert "num_key_value_heads" in refusal_text(lambda: read_config(own))
    plain = llama(64, 96, 2, 4, 4, 100)
    del plain["num_key_value_heads"]
    assert "num_key_value_heads is absent: 4" in read_config(plain).assumptions


def test_it_is_recognised_by_its_content() -> None:
    assert looks_like_hugging_face_config(MIXTURE)
    assert looks_like_hugging_face_config(b"\xef\xbb\xbf\n" + MIXTURE)
    assert not looks_like_hugging_face_config(b'{"nodes": []}')
    assert not looks_like_hugging_face_config(b'model_type "model_type"')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "t5"}, "is one of gpt2, llama"),
        ({"model_type": ["llama"]}, "is one of gpt2, llama"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "another head"),
        ({"architectures": "LlamaForCausalLM"}, "list of names"),
        ({"hidden_size": 4097}, "divides hidden_size 4097"),
        ({"hidden_size": 0}, "whole number from 1"),
        ({"hidden_size": "4096"}, "whole number from 1"),
        ({"hidden_size": None}, "has no 'hidden_size'"),
        ({"num_hidden_layers": 10_001}, "at most 10000"),
        ({"num_key_value_heads": 5}, "divides num_attention_heads 32"),
        ({"attention_bias": "no"}, "true or false"),
        ({"torch_dtype": "int4"}, "is one of bfloat16"),
        ({"torch_dtype": 16}, "is a text"),
        ({"hidden_size": 10**8, "vocab_size": 10**8, "head_dim": 1}, "larger than 2^53 - 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(changes: dict[str, Any], words: str) -> None:
    config = {**LLAMA3_8B, "torch_dtype": "bfloat16", **changes}
    found = refusals(lambda: read_config(config))
    assert {code for code, _ in found} == {FaultCode.UNREADABLE}
    keys = ["{", *config]
    changed = next(iter(changes))
    if changes[changed] is not None and "larger" not in words and "divides hidden" not in words:
        line = keys.index(changed) + 1
        assert {("line", line), ("line", line + 1)} & {path for _, path in found}
    assert words in refusal_text(lambda: read_config(config))


def test_more_of_other_types_that_does_not_fit() -> None:
    for config, words in (
        ({**GPT2, "add_cross_attention": True}, "cross attention"),
        ({**GPT2, "n_head": 11}, "divides n_embd"),
        ({**MIXTRAL, "num_experts_per_tok": 9}, "at most num_local_experts 8"),
        ({**QWEN3_30B, "mlp_only_layers": 3}, "list of"),
        ({**QWEN3_30B, "mlp_only_layers": [-1]}, "whole number from 0"),
        ({**DEEPSEEK_V3, "attention_bias": True}, "latent attention"),
        ({k: v for k, v in DEEPSEEK_V3.items() if k != "q_lora_rank"}, "q_lora_rank"),
    ):
        assert words in refusal_text(lambda config=config: read_config(config))  # type: ignore[misc]
    further = read_config({**DEEPSEEK_V3, "num_nextn_predict_layers": 1})
    assert any("further tokens" in item.detail for item in further.left_out)


def test_every_type_is_tried_here() -> None:
    tried = {"gpt2", "llama", "mistral", "qwen2", "qwen3"}
    tried |= {"mixtral", "olmoe", "qwen3_moe", "deepseek_v2", "deepseek_v3"}
    assert set(MODEL_TYPES) == tried


def test_no_line_is_without_effect() -> None:
    assert lines_without_effect(read, MIXTURE, aside=lambda line: line in "{}") == []


def test_damaged_files_are_read_or_refused() -> None:
    assert 0 < read_damaged(read, MIXTURE, seed=3) < 300
