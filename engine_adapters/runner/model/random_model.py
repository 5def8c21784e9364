"""Writes a model directory with seeded random weights and a tokenizer trained on a text.

For demonstrations and tests where no trained model is at hand.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.random_tensors import random_tensors
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomModelShape:
    """Sizes of the model; the default has about 25 million parameters and plain MHA.

    ``kv_head_count`` below ``head_count`` makes it GQA, which OPT does not know.
    ``vocab_size`` is an upper bound: a small text may not yield so many tokens.
    """

    vocab_size: int = 4096
    hidden_size: int = 512
    intermediate_size: int = 1024
    layer_count: int = 8
    head_count: int = 8
    kv_head_count: int = 8
    position_count: int = 32_768
    family: Family = Family.LLAMA

    def __post_init__(self) -> None:
        if self.family is Family.OPT and self.kv_head_count != self.head_count:
            raise ValueError(
                f"an OPT model has as many key heads as heads ({self.head_count}), "
                f"not {self.kv_head_count}"
            )

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""
        return self.hidden_size // self.head_count


def write_random_model(
    directory: Path, shape: RandomModelShape, texts: Iterable[str], *, seed: int = 0
) -> None:
    """Fills ``directory`` (made if needed) with config, weights (float32) and tokenizer.

    The tokenizer is trained on ``texts``. Equal arguments give equal files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts, vocab_size=shape.vocab_size)
    tokenizer.save(str(directory / TOKENIZER_FILE))
    vocab_size = tokenizer.get_vocab_size()
    config = json.dumps(_config_fields(shape, vocab_size), indent=2)
    (directory / "config.json").write_text(config + "\n", encoding="utf-8")
    tensors = random_tensors(shape.family, shape, vocab_size, torch.Generator().manual_seed(seed))
    save_file(tensors, directory / SINGLE_FILE, metadata={"format": "pt"})


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer: any text encodes, and decodes to itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _config_fields(shape: RandomModelShape, vocab_size: int) -> dict[str, object]:
    shared: dict[str, object] = {
        "bos_token_id": None,
        "dtype": "float32",
        "eos_token_id": None,
        "hidden_size": shape.hidden_size,
        "max_position_embeddings": shape.position_count,
        "num_attention_heads": shape.head_count,
        "num_hidden_layers": shape.layer_count,
        "vocab_size": vocab_size,
    }
    match shape.family:
        case Family.LLAMA:
            own: dict[str, object] = {
                "architectures": ["LlamaForCausalLM"],
                "attention_bias": False,
                "head_dim": shape.head_dim,
                "hidden_act": "silu",
                "intermediate_size": shape.intermediate_size,
                "mlp_bias": False,
                "model_type": "llama",
                "num_key_value_heads": shape.kv_head_count,
                "rms_norm_eps": 1e-5,
                "rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"},
                "tie_word_embeddings": False,
            }
        case Family.OPT:
            own = {
                "activation_function": "relu",
                "architectures": ["OPTForCausalLM"],
                "do_layer_norm_before": True,
                "ffn_dim": shape.intermediate_size,
                "model_type": "opt",
                "pad_token_id": None,
                "tie_word_embeddings": True,
                "word_embed_proj_dim": shape.hidden_size,
            }
    return dict(sorted({**shared, **own}.items()))
