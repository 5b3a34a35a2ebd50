"""Which keys of a Hugging Face config say what, for each `model_type` that is read.

What may be absent has the default of its class, which the fields list as assumed. Keys that a class
always writes have to be there: their defaults are one model's dimensions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from service.core.models.dimensions import Attention, Experts, LatentAttention, Mlp
from service.formats.pasted_json import JsonFile

__all__ = ["MODEL_TYPES", "Fields", "Shape"]

MAX_BLOCKS = 10_000
_MAX_SIZE = 10**8


class Fields:
    """The keys of a config, each asked for once; what is not asked for is left out."""

    def __init__(self, file: JsonFile, values: Mapping[str, Any], assumptions: list[str]) -> None:
        self._file = file
        self._values = values
        self._asked = {"model_type"}
        self._assumptions = assumptions

    def has(self, key: str) -> bool:
        """Whether it is there and not null, which stands for absent."""
        self._asked.add(key)
        return self._values.get(key) is not None

    def size(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A count of at least `least`; without a default it has to be there."""
        if not self.has(key):
            if default is None:
                self._file.refuse((), f"has no {key!r}, which this model_type needs")
            else:
                self._assumptions.append(f"{key} is absent: {default}")
            return default or 1
        read = self._file.whole((key,), self._values[key], least=least, most=_MAX_SIZE)
        return 1 if read is None else read

    def size_or_null(self, key: str) -> int:
        """A count that has to be there; 0 for null."""
        if not self.has(key) and key in self._values:
            return 0
        return self.size(key, least=0)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        if not self.has(key):
            self._assumptions.append(f"{key} is absent: {str(default).lower()}")
            return default
        value = self._values[key]
        if not isinstance(value, bool):
            self._file.refuse((key,), "is true or false")
        return value is True

    def text(self, key: str) -> str | None:
        """A text, or None when it is absent."""
        if not self.has(key):
            return None
        if not isinstance(self._values[key], str):
            self._file.refuse((key,), "is a text")
            return None
        return str(self._values[key])

    def places(self, key: str) -> list[int]:
        """A list of positions of blocks; empty when absent."""
        if not self.has(key):
            return []
        found = self._values[key]
        if not isinstance(found, list) or len(found) > MAX_BLOCKS:
            self._file.refuse((key,), f"is a list of at most {MAX_BLOCKS} positions of blocks")
            return []
        read = [
            self._file.whole((key, place), value, most=MAX_BLOCKS)
            for place, value in enumerate(found)
        ]
        return [value for value in read if value is not None]

    def refuse(self, key: str, detail: str) -> None:
        """Note that a key does not fit others; not when one can't be read, which would follow."""
        if self._file.sound:
            self._file.refuse((key,), detail)

    def leave_out(self, key: str, detail: str) -> None:
        """Note what is read over though it matters."""
        self._asked.add(key)
        self._file.leave_out((key,), detail)

    def leave_out_the_rest(self) -> None:
        """Tell which keys nothing was read of."""
        for key in self._values:
            if key not in self._asked:
                self._file.leave_out((key,), "not read: counts of weights do not follow from it")


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer without its type of numbers."""

    hidden: int
    vocabulary: int
    attention: Attention | LatentAttention
    blocks: tuple[Mlp | Experts, ...]
    tied: bool
    positions: int = 0
    norm_bias: bool = False


def _blocks(fields: Fields) -> int:
    count = fields.size("num_hidden_layers")
    if count > MAX_BLOCKS:
        fields.refuse("num_hidden_layers", f"is at most {MAX_BLOCKS}")
        return 1
    return count


def _gpt2(fields: Fields) -> Shape:
    hidden, heads, count = fields.size("n_embd"), fields.size("n_head"), fields.size("n_layer")
    if hidden % heads:
        fields.refuse("n_head", f"divides n_embd {hidden}; got {heads}")
    if count > MAX_BLOCKS:
        fields.refuse("n_layer", f"is at most {MAX_BLOCKS}")
        count = 1
    if fields.flag("add_cross_attention", default=False):
        fields.refuse("add_cross_attention", "is false here: cross attention is not read")
    attention = Attention(
        heads=heads,
        key_value_heads=heads,
        head_size=hidden // heads,
        input_bias=True,
        output_bias=True,
    )
    mlp = Mlp(width=fields.size("n_inner", 4 * hidden), gated=False, bias=True)
    return Shape(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        attention=attention,
        blocks=(mlp,) * count,
        tied=fields.flag("tie_word_embeddings", default=True),
        positions=fields.size("n_positions"),
        norm_bias=True,
    )


def _attention(
    fields: Fields,
    hidden: int,
    *,
    input_bias: bool = False,
    output_bias: bool = False,
    normed: str = "",
    must_say: bool = True,
    head_size: int | None = None,
) -> Attention:
    """Attention of the llama family.

    `normed` is `head`, `all` or nothing; `must_say` is false where the class takes as many
    key-value heads as heads when it is not said, `head_size` is its default where it has one.
    """
    heads = fields.size("num_attention_heads")
    shared = fields.size("num_key_value_heads", None if must_say else heads)
    if heads % shared:
        fields.refuse("num_key_value_heads", f"divides num_attention_heads {heads}; got {shared}")
    if hidden % heads and head_size is None and not fields.has("head_dim"):
        fields.refuse("num_attention_heads", f"divides hidden_size {hidden}; got {heads}")
    size = fields.size("head_dim", head_size or max(1, hidden // heads))
    return Attention(
        heads=heads,
        key_value_heads=shared,
        head_size=size,
        input_bias=input_bias,
        output_bias=output_bias,
        query_norm={"head": size, "all": heads * size}.get(normed, 0),
        key_norm={"head": size, "all": shared * size}.get(normed, 0),
    )


def _llama_like(
    fields: Fields,
    *,
    input_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    normed: str = "",
    must_say: bool = True,
    head_size: int | None = None,
) -> Shape:
    hidden = fields.size("hidden_size")
    mlp = Mlp(width=fields.size("intermediate_size"), gated=True, bias=mlp_bias)
    return Shape(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        attention=_attention(
            fields,
            hidden,
            input_bias=input_bias,
            output_bias=output_bias,
            normed=normed,
            must_say=must_say,
            head_size=head_size,
        ),
        blocks=(mlp,) * _blocks(fields),
        tied=fields.flag("tie_word_embeddings", default=False),
    )


def _llama(fields: Fields) -> Shape:
    bias = fields.flag("attention_bias", default=False)
    mlp_bias = fields.flag("mlp_bias", default=False)
    return _llama_like(fields, input_bias=bias, output_bias=bias, mlp_bias=mlp_bias, must_say=False)


def _qwen2(fields: Fields) -> Shape:
    return _llama_like(fields, input_bias=True)


def _qwen3(fields: Fields) -> Shape:
    bias = fields.flag("attention_bias", default=False)
    return _llama_like(fields, input_bias=bias, output_bias=bias, normed="head", head_size=128)


def _experts(
    fields: Fields, *, count: str, width: str, active: str = "num_experts_per_tok"
) -> Experts:
    number, taken = fields.size(count), fields.size(active)
    if taken > number:
        fields.refuse(active, f"is at most {count} {number}; got {taken}")
    return Experts(count=number, active=taken, each=Mlp(width=fields.size(width), gated=True))


def _mixtral(fields: Fields) -> Shape:
    hidden = fields.size("hidden_size")
    experts = _experts(fields, count="num_local_experts", width="intermediate_size")
    return Shape(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        attention=_attention(fields, hidden),
        blocks=(experts,) * _blocks(fields),
        tied=fields.flag("tie_word_embeddings", default=False),
    )


def _olmoe(fields: Fields) -> Shape:
    hidden = fields.size("hidden_size")
    bias = fields.flag("attention_bias", default=False)
    experts = _experts(fields, count="num_experts", width="intermediate_size")
    return Shape(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        attention=_attention(
            fields, hidden, input_bias=bias, output_bias=bias, normed="all", must_say=False
        ),
        blocks=(experts,) * _blocks(fields),
        tied=fields.flag("tie_word_embeddings", default=False),
    )


def _qwen3_moe(fields: Fields) -> Shape:
    hidden = fields.size("hidden_size")
    bias = fields.flag("attention_bias", default=False)
    experts = _experts(fields, count="num_experts", width="moe_intermediate_size")
    every = fields.size("decoder_sparse_step", 1)
    plain = set(fields.places("mlp_only_layers"))
    mlp = Mlp(width=fields.size("intermediate_size"), gated=True)
    return Shape(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        attention=_attention(
            fields, hidden, input_bias=bias, output_bias=bias, normed="head", head_size=128
        ),
        blocks=tuple(
            mlp if index in plain or (index + 1) % every else experts
            for index in range(_blocks(fields))
        ),
        tied=fields.flag("tie_word_embeddings", default=False),
    )


def _deepseek(fields: Fields, *, router_bias: bool) -> Shape:
    """Latent attention; the first blocks are dense, the others have shared experts as well."""
    hidden = fields.size("hidden_size")
    if fields.flag("attention_bias", default=False):
        fields.refuse("attention_bias", "is false here: biases of latent attention are not read")
    attention = LatentAttention(
        heads=fields.size("num_attention_heads"),
        query_rank=fields.size_or_null("q_lora_rank"),
        key_value_rank=fields.size("kv_lora_rank"),
        plain_size=fields.size("qk_nope_head_dim"),
        rotary_size=fields.size("qk_rope_head_dim"),
        value_size=fields.size("v_head_dim"),
    )
    experts = _experts(fields, count="n_routed_experts", width="moe_intermediate_size")
    shared = fields.size_or_null("n_shared_experts")
    parts = Experts(
        count=experts.count,
        active=experts.active,
        each=experts.each,
        router_bias=router_bias,
        shared=Mlp(width=shared * experts.each.width, gated=True) if shared else None,
    )
    dense = fields.size("first_k_dense_replace", least=0)
    every = fields.size("moe_layer_freq", 1)
    mlp = Mlp(width=fields.size("intermediate_size"), gated=True)
    if fields.has("num_nextn_predict_layers"):
        fields.leave_out(
            "num_nextn_predict_layers", "layers that predict further tokens are not read"
        )
    return Shape(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        attention=attention,
        blocks=tuple(
            mlp if index < dense or index % every else parts for index in range(_blocks(fields))
        ),
        tied=fields.flag("tie_word_embeddings", default=False),
    )


MODEL_TYPES: Mapping[str, Callable[[Fields], Shape]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama_like,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "mixtral": _mixtral,
    "olmoe": _olmoe,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": lambda fields: _deepseek(fields, router_bias=False),
    "deepseek_v3": lambda fields: _deepseek(fields, router_bias=True),
}
