"""Tiny random models of each kind that the cache takes."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "initializer_range": 0.4,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA_LIKE: dict[str, Any] = {
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
OWN: dict[str, dict[str, Any]] = {
    "gpt2": {"n_positions": 512},
    "gpt_neox": {"intermediate_size": 48, "max_position_embeddings": 512},
    "llama": LLAMA_LIKE,
    "mistral": {**LLAMA_LIKE, "sliding_window": None},
    "opt": {
        "ffn_dim": 48,
        "max_position_embeddings": 512,
        "word_embed_proj_dim": 32,
        "init_std": 0.4,
        "pad_token_id": 1,
    },
    "phi3": LLAMA_LIKE,
    "qwen2": LLAMA_LIKE,
    "qwen3": {**LLAMA_LIKE, "head_dim": 8},
}


def make_model(kind: str = "llama", *, seed: int = 7, **changes: Any) -> Any:
    """A model that computes in float32 and never ends an answer."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **{**SIZES, **OWN[kind], **changes})
    return AutoModelForCausalLM.from_config(config).eval()
