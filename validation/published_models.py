"""Configs of published models, as their authors have written them: what counts parameters."""

from typing import Any

__all__ = [
    "DEEPSEEK_V2_LITE",
    "DEEPSEEK_V3",
    "GPT2",
    "LLAMA3_8B",
    "MIXTRAL",
    "OLMOE",
    "QWEN3_30B",
    "QWEN25_7B",
    "llama",
]


def llama(hidden: int, width: int, blocks: int, heads: int, shared: int, words: int) -> Any:
    """The `config.json` of a Llama: sizes of layers and MLPs, heads of queries and of keys."""
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "vocab_size": words,
    }


GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
LLAMA3_8B = llama(4096, 14336, 32, 32, 8, 128256)
MIXTRAL = {
    **llama(4096, 14336, 32, 32, 8, 32000),
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
OLMOE = {
    **llama(2048, 1024, 16, 16, 16, 50304),
    "model_type": "olmoe",
    "num_experts": 64,
    "num_experts_per_tok": 8,
}
LATENT = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK_V3 = {
    **llama(7168, 18432, 61, 128, 128, 129280),
    **LATENT,
    "model_type": "deepseek_v3",
    "q_lora_rank": 1536,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
}
DEEPSEEK_V2_LITE = {
    **llama(2048, 10944, 27, 16, 16, 102400),
    **LATENT,
    "model_type": "deepseek_v2",
    "q_lora_rank": None,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}
QWEN25_7B = {**llama(3584, 18944, 28, 28, 4, 152064), "model_type": "qwen2"}
QWEN3_30B = {
    **llama(2048, 6144, 48, 32, 4, 151936),
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
