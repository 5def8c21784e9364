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

from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.opt_weights import POSITION_OFFSET
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE

SCORE_DEVIATION = 2.5
"""Standard deviation of attention scores."""

SCORE_GAIN = math.sqrt(SCORE_DEVIATION)
"""Deviation of queries and keys: scores are their products over sqrt(head_dim)."""

BRANCH_GAIN = 1.0
"""How much each attention and each MLP adds to the residual, relative to the embedding."""

TIED_DEVIATION = 0.1
"""Deviation of an embedding that is the output too: a larger one would make each token
its own best successor, whatever the history."""

BIAS_DEVIATION = 0.1
"""Standard deviation of biases."""


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
    drawn = _RandomTensors(shape, vocab_size, torch.Generator().manual_seed(seed))
    match shape.family:
        case Family.LLAMA:
            tensors = drawn.llama()
        case Family.OPT:
            tensors = drawn.opt()
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


class _RandomTensors:
    """Draws the tensors of a model, always in the same order."""

    def __init__(self, shape: RandomModelShape, vocab_size: int, generator: torch.Generator):
        self._shape = shape
        self._vocab_size = vocab_size
        self._generator = generator

    def llama(self) -> dict[str, Tensor]:
        """All tensors of a Llama model, by the names of its checkpoints."""
        shape, hidden, inner = self._shape, self._shape.hidden_size, self._shape.intermediate_size
        states = shape.kv_head_count * shape.head_dim
        tensors = {
            "model.embed_tokens.weight": self._normal(self._vocab_size, hidden),
            "model.norm.weight": torch.ones(hidden),
            "lm_head.weight": self._map(self._vocab_size, hidden, 1.0),
        }
        for index in range(shape.layer_count):
            prefix = f"model.layers.{index}."
            attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
            tensors |= {
                f"{prefix}input_layernorm.weight": torch.ones(hidden),
                f"{prefix}post_attention_layernorm.weight": torch.ones(hidden),
                f"{attention}q_proj.weight": self._map(hidden, hidden, SCORE_GAIN),
                f"{attention}k_proj.weight": self._map(states, hidden, SCORE_GAIN),
                f"{attention}v_proj.weight": self._map(states, hidden, 1.0),
                f"{attention}o_proj.weight": self._map(hidden, hidden, BRANCH_GAIN),
                f"{mlp}gate_proj.weight": self._map(inner, hidden, 1.0),
                f"{mlp}up_proj.weight": self._map(inner, hidden, 1.0),
                f"{mlp}down_proj.weight": self._map(hidden, inner, BRANCH_GAIN),
            }
        return tensors

    def opt(self) -> dict[str, Tensor]:
        """All tensors of an OPT model, by the names of its checkpoints."""
        shape, hidden, inner = self._shape, self._shape.hidden_size, self._shape.intermediate_size
        prefix = "model.decoder."
        # The outputs are products with the embedding: the norm before brings them to one.
        tensors = {
            f"{prefix}embed_tokens.weight": TIED_DEVIATION * self._normal(self._vocab_size, hidden),
            f"{prefix}embed_positions.weight": TIED_DEVIATION
            * self._normal(shape.position_count + POSITION_OFFSET, hidden),
            f"{prefix}final_layer_norm.weight": torch.full(
                (hidden,), 1 / (TIED_DEVIATION * math.sqrt(hidden))
            ),
            f"{prefix}final_layer_norm.bias": BIAS_DEVIATION * self._normal(hidden),
        }
        for index in range(shape.layer_count):
            layer = f"{prefix}layers.{index}."
            attention = f"{layer}self_attn."
            for name in (f"{layer}self_attn_layer_norm", f"{layer}final_layer_norm"):
                tensors[f"{name}.weight"] = torch.ones(hidden)
                tensors[f"{name}.bias"] = BIAS_DEVIATION * self._normal(hidden)
            for name, rows, columns, gain in (
                (f"{attention}q_proj", hidden, hidden, SCORE_GAIN),
                (f"{attention}k_proj", hidden, hidden, SCORE_GAIN),
                (f"{attention}v_proj", hidden, hidden, 1.0),
                (f"{attention}out_proj", hidden, hidden, BRANCH_GAIN),
                (f"{layer}fc1", inner, hidden, 1.0),
                # ReLU halves the mean square of what it is given.
                (f"{layer}fc2", hidden, inner, BRANCH_GAIN * math.sqrt(2)),
            ):
                tensors[f"{name}.weight"] = self._map(rows, columns, gain)
                tensors[f"{name}.bias"] = BIAS_DEVIATION * self._normal(rows)
        return tensors

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator)

    def _map(self, rows: int, columns: int, gain: float) -> Tensor:
        """Weights that map inputs of unit variance to outputs of deviation ``gain``."""
        return self._normal(rows, columns) * (gain / math.sqrt(columns))
