"""Megatron-style arguments: the transformer they describe, and the plan they launch.

Options mean what Megatron-LM takes them for: a vocabulary padded to a multiple of
`make_vocab_size_divisible_by` x tensor degree, an MLP of four hidden sizes (or two thirds of that
when it is gated), biases unless they are disabled.
"""

from collections.abc import Sequence
from re import compile as compile_expression
from re import fullmatch

from service.core.errors import FaultCode
from service.core.models.dimensions import Attention, Experts, Mlp
from service.core.models.dtypes import DType
from service.formats.megatron_options import Options, read_options
from service.formats.megatron_plan import read_plan
from service.formats.model_reading import ModelReading, StatedModel
from service.formats.transformer_model import (
    Transformer,
    active_parameter_count,
    model_document,
    parameter_count,
    too_large,
)

__all__ = ["looks_like_megatron", "read_megatron"]

MAX_BLOCKS = 10_000
_REPEATED = compile_expression(r"\(?\[([01](?:,[01])*)\]\)?(?:\*([0-9]{1,5}))?")


def looks_like_megatron(content: bytes) -> bool:
    """Whether it has Megatron's options for layers and hidden size, in a script or in JSON."""
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        needed = (b'"num_layers"', b'"hidden_size"', b'"num_attention_heads"')
    else:
        needed = (b"--num-layers", b"--hidden-size", b"--num-attention-heads")
    return all(mark in content for mark in needed)


def read_megatron(content: bytes, stated: StatedModel) -> ModelReading:
    """Read the arguments of a launch into a model and, where they say a batch size, a plan.

    `stated.vocabulary_size` counts tokens where no option does. Raises `InvalidInput` with every
    fault: of a line (counted from 1) at `("line", n)`, of what is stated at its name.
    """
    options = read_options(content)
    model = _transformer(options, stated)
    plan = read_plan(options, model)
    name = too_large(model)
    if name is not None:
        options.refuse_together(f"{name} would have more than 2^53 - 1 elements")
    assumptions, left_out = options.told()
    return ModelReading(
        model=model_document(model),
        plan=plan,
        facts={
            "blocks": len(model.blocks),
            "hidden_size": model.hidden,
            "vocabulary_size": model.vocabulary,
            "parameters": parameter_count(model),
            "active_parameters": active_parameter_count(model),
            "has_plan": plan is not None,
        },
        assumptions=assumptions,
        left_out=left_out,
    )


def _transformer(options: Options, stated: StatedModel) -> Transformer:
    hidden, blocks = options.size("hidden_size"), options.size("num_layers")
    if blocks > MAX_BLOCKS:
        options.refuse("num_layers", f"is at most {MAX_BLOCKS}")
        blocks = 1
    if options.flag("multi_latent_attention"):
        options.refuse("multi_latent_attention", "latent attention is not read from arguments")
    norm_bias = _norm_bias(options)
    bias = not options.flag("disable_bias_linear")
    if options.has("add_bias_linear"):  # as JSON of all arguments has it
        bias = options.flag("add_bias_linear")
    gated = options.flag("swiglu")
    usual = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    mlp = Mlp(width=options.size("ffn_hidden_size", max(1, usual)), gated=gated, bias=bias)
    tied = not options.flag("untie_embeddings_and_output_weights")
    if tied:
        options.assume("the head is the embedding again: one weight, in the tied group `embedding`")
    if not options.has("ffn_hidden_size"):
        options.assume(f"--ffn-hidden-size is not given: {mlp.width}")
    return Transformer(
        hidden=hidden,
        vocabulary=_vocabulary(options, stated),
        positions=_positions(options),
        attention=_attention(options, hidden, bias=bias, norm_bias=norm_bias),
        blocks=_blocks(options, blocks, mlp),
        norm_bias=norm_bias,
        tied=tied,
        dtype=_dtype(options, stated),
    )


def _norm_bias(options: Options) -> bool:
    kind = options.text("normalization", "LayerNorm")
    if kind not in {"LayerNorm", "RMSNorm"}:
        options.refuse("normalization", "is LayerNorm or RMSNorm")
    return kind == "LayerNorm"


def _attention(options: Options, hidden: int, *, bias: bool, norm_bias: bool) -> Attention:
    heads = options.size("num_attention_heads")
    grouped = options.flag("group_query_attention")
    if not grouped:
        options.leave_out("num_query_groups", "has no effect without --group-query-attention")
    shared = options.size("num_query_groups", 1) if grouped else heads
    if heads % shared:
        options.refuse_together(f"--num-query-groups divides {heads} heads; got {shared}")
    if not options.has("kv_channels") and hidden % heads:
        options.refuse_together(
            f"--num-attention-heads divides --hidden-size {hidden}; got {heads}"
        )
    size = options.size("kv_channels", max(1, hidden // heads))
    normed = size * (2 if norm_bias else 1) if options.flag("qk_layernorm") else 0
    return Attention(
        heads=heads,
        key_value_heads=shared,
        head_size=size,
        input_bias=options.flag("add_qkv_bias") or bias,
        output_bias=bias,
        query_norm=normed,
        key_norm=normed,
    )


def _positions(options: Options) -> int:
    rotates = options.flag("use_rotary_position_embeddings")
    kind = options.text("position_embedding_type", "rope" if rotates else "learned_absolute")
    if kind != "learned_absolute" or rotates:
        return 0
    return options.size("max_position_embeddings")


def _vocabulary(options: Options, stated: StatedModel) -> int:
    """Padded as Megatron pads it, unless the arguments have the padded size already."""
    padded = options.size("padded_vocab_size") if options.has("padded_vocab_size") else None
    multiple = options.size("make_vocab_size_divisible_by", 128)
    multiple *= options.size("tensor_model_parallel_size", 1)
    if options.has("vocab_size"):
        size = options.size("vocab_size")
    elif stated.vocabulary_size is not None:
        size = stated.vocabulary_size
    elif padded is not None:
        size = padded
    else:
        options.ask("vocabulary_size", "the arguments leave it to a tokenizer: state it")
        return multiple
    if options.has("vocab_size") and stated.vocabulary_size not in (None, size):
        detail = f"--vocab-size says {size}: leave it out"
        options.ask("vocabulary_size", detail, FaultCode.INCONSISTENT)
    if padded is None:
        padded = -(-size // multiple) * multiple
        if padded != size:
            options.assume(
                f"the vocabulary of {size} is padded to {padded}, a multiple of {multiple}"
            )
    return padded


def _dtype(options: Options, stated: StatedModel) -> DType:
    halves = {"bf16": DType.BF16, "fp16": DType.FP16}
    given = [dtype for name, dtype in halves.items() if options.flag(name)]
    if len(given) > 1:
        options.refuse_together("--bf16 and --fp16 exclude each other")
    dtype = stated.dtype or (given[0] if given else DType.FP32)
    options.assume(f"weights and what passes between layers are {dtype.value}; tokens are int64")
    return dtype


def _blocks(options: Options, count: int, mlp: Mlp) -> tuple[Mlp | Experts, ...]:
    if not options.has("num_experts"):
        return (mlp,) * count
    number, active = options.size("num_experts"), options.size("moe_router_topk", 2)
    if active > number:
        options.refuse_together(f"--moe-router-topk is at most --num-experts {number}")
    if mlp.bias:
        options.refuse_together("experts are read without biases: give --disable-bias-linear")
    width = options.size("moe_ffn_hidden_size", mlp.width)
    shared = None
    if options.has("moe_shared_expert_intermediate_size"):
        size = options.size("moe_shared_expert_intermediate_size")
        shared = Mlp(width=size, gated=mlp.gated)
    experts = Experts(
        count=number,
        active=active,
        each=Mlp(width=width, gated=mlp.gated),
        shared=shared,
        shared_gate=options.flag("moe_shared_expert_gate"),
    )
    return tuple(experts if mixed else mlp for mixed in _pattern(options, count))


def _pattern(options: Options, count: int) -> Sequence[bool]:
    """Which blocks have experts: every n-th from the first, or a list as Megatron writes it."""
    text = options.text("moe_layer_freq", "1").replace(" ", "")
    if fullmatch(r"[1-9][0-9]{0,4}", text):
        return [index % int(text) == 0 for index in range(count)]
    pattern: list[bool] = []
    for part in text.split("+"):
        found = _REPEATED.fullmatch(part)
        if found is None or len(pattern) > count:
            pattern = []
            break
        once = [digit == "1" for digit in found[1].split(",")]
        pattern += (once * min(int(found[2] or 1), count))[: count + 1]
    if len(pattern) != count:
        detail = f"is a number, or {count} zeros and ones as [0]*1+[1]*{max(1, count - 1)}"
        if options.sound:  # else it may be the number of layers that is wrong
            options.refuse("moe_layer_freq", detail)
        return [True] * count
    return pattern
