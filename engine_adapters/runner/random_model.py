"""Writes a model directory with seeded random weights and a tokenizer trained on a text.

For demonstrations and tests where no trained model is at hand. The weights are scaled
so that the model behaves like one in what matters here: attention picks few tokens out
of a long history, so a wrong state changes the output, and the best logit leads by far
more than rounding can move.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from engine_adapters.runner.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.weights import SINGLE_FILE

SCORE_DEVIATION = 2.5
"""Standard deviation of attention scores."""

BRANCH_GAIN = 1.0
"""How much each attention and each MLP adds to the residual, relative to the embedding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomModelShape:
    """Sizes of the model; the default has about 25 million parameters and plain MHA.

    ``kv_head_count`` below ``head_count`` makes it GQA. ``vocab_size`` is an upper
    bound: a small text may not yield so many tokens.
    """

    vocab_size: int = 4096
    hidden_size: int = 512
    intermediate_size: int = 1024
    layer_count: int = 8
    head_count: int = 8
    kv_head_count: int = 8
    position_count: int = 32_768

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
    generator = torch.Generator().manual_seed(seed)
    save_file(
        _random_tensors(shape, vocab_size, generator),
        directory / SINGLE_FILE,
        metadata={"format": "pt"},
    )


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
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": None,
        "dtype": "float32",
        "eos_token_id": None,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.position_count,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.head_count,
        "num_hidden_layers": shape.layer_count,
        "num_key_value_heads": shape.kv_head_count,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": vocab_size,
    }


def _random_tensors(
    shape: RandomModelShape, vocab_size: int, generator: torch.Generator
) -> dict[str, Tensor]:
    def normal(rows: int, columns: int, gain: float) -> Tensor:
        """Weights that map inputs of unit variance to outputs of deviation ``gain``."""
        deviation = gain / math.sqrt(columns)
        return torch.randn(rows, columns, generator=generator) * deviation

    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, states = hidden, shape.kv_head_count * shape.head_dim
    # Scores are query x key / sqrt(head_dim) over head_dim products of unit variance.
    score_gain = math.sqrt(SCORE_DEVIATION)
    tensors = {
        "model.embed_tokens.weight": torch.randn(vocab_size, hidden, generator=generator),
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": normal(vocab_size, hidden, 1.0),
    }
    for index in range(shape.layer_count):
        prefix = f"model.layers.{index}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        tensors |= {
            f"{prefix}input_layernorm.weight": torch.ones(hidden),
            f"{prefix}post_attention_layernorm.weight": torch.ones(hidden),
            f"{attention}q_proj.weight": normal(queries, hidden, score_gain),
            f"{attention}k_proj.weight": normal(states, hidden, score_gain),
            f"{attention}v_proj.weight": normal(states, hidden, 1.0),
            f"{attention}o_proj.weight": normal(hidden, queries, BRANCH_GAIN),
            f"{mlp}gate_proj.weight": normal(inner, hidden, 1.0),
            f"{mlp}up_proj.weight": normal(inner, hidden, 1.0),
            f"{mlp}down_proj.weight": normal(hidden, inner, BRANCH_GAIN),
        }
    return tensors
