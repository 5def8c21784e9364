"""Tiny random checkpoints, written by transformers.

It is imported when one is written: tests that write none run where it is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, MistralForCausalLM, OPTForCausalLM

TINY: Mapping[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}

TINY_OPT: Mapping[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "init_std": 0.4,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 1,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def write_llama(directory: Path, *, shard_bytes: str = "1GB", **changes: Any) -> LlamaForCausalLM:
    """Writes a checkpoint into ``directory`` and returns the model that it holds."""
    torch.manual_seed(7)
    import transformers

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**TINY, **changes})).eval()
    _randomize_norms(model)
    model.save_pretrained(directory, max_shard_size=shard_bytes)
    return model


def write_opt(directory: Path, *, shard_bytes: str = "1GB", **changes: Any) -> OPTForCausalLM:
    """As ``write_llama``, of the OPT architecture."""
    torch.manual_seed(9)
    import transformers

    model = transformers.OPTForCausalLM(transformers.OPTConfig(**{**TINY_OPT, **changes})).eval()
    _randomize_norms(model)
    model.save_pretrained(directory, max_shard_size=shard_bytes)
    return model


def _randomize_norms(model: nn.Module) -> None:
    """Biases start at zero, and norms at one: a test must see that they are used."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.normal_(mean=0.5, std=0.3)


def write_mistral(directory: Path, **changes: Any) -> MistralForCausalLM:
    """As ``write_llama``, of the Mistral architecture."""
    torch.manual_seed(8)
    import transformers

    model = transformers.MistralForCausalLM(
        transformers.MistralConfig(**{**TINY, **changes})
    ).eval()
    model.save_pretrained(directory)
    return model
