"""Tensors of models with random weights, by the names of checkpoints.

The weights are scaled so that the model behaves like a trained one in what matters here: attention
picks few tokens out of a long history, so a wrong state changes the output, and the best logit
leads by far more than rounding can move.
"""

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.opt_weights import POSITION_OFFSET, PREFIX

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


class Sizes(Protocol):
    """What is asked of a model's configuration."""

    @property
    def hidden_size(self) -> int:
        """Of a layer's input."""

    @property
    def intermediate_size(self) -> int:
        """Of an MLP."""

    @property
    def layer_count(self) -> int:
        """Layers of the model."""

    @property
    def kv_head_count(self) -> int:
        """Heads that have keys and values."""

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""

    @property
    def position_count(self) -> int:
        """Positions that a model may have learned."""


def random_tensors(
    family: Family,
    sizes: Sizes,
    vocab_size: int,
    generator: torch.Generator,
    *,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """All tensors of a model, on the device of ``generator``; equal seeds give equal ones."""
    drawn = _RandomTensors(sizes, vocab_size, generator, dtype)
    return drawn.llama() if family is Family.LLAMA else drawn.opt()


class _RandomTensors:
    """Draws the tensors of a model, always in the same order."""

    def __init__(
        self, shape: Sizes, vocab_size: int, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        self._shape = shape
        self._vocab_size = vocab_size
        self._generator = generator
        self._kind: dict[str, Any] = {"dtype": dtype, "device": generator.device}

    def llama(self) -> dict[str, Tensor]:
        """All tensors of a Llama model, by the names of its checkpoints."""
        shape, hidden, inner = self._shape, self._shape.hidden_size, self._shape.intermediate_size
        states = shape.kv_head_count * shape.head_dim
        tensors = {
            "model.embed_tokens.weight": self._normal(1.0, self._vocab_size, hidden),
            "model.norm.weight": self._full(1.0, hidden),
            "lm_head.weight": self._map(self._vocab_size, hidden, 1.0),
        }
        for index in range(shape.layer_count):
            prefix = f"model.layers.{index}."
            attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
            tensors |= {
                f"{prefix}input_layernorm.weight": self._full(1.0, hidden),
                f"{prefix}post_attention_layernorm.weight": self._full(1.0, hidden),
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
        positions = shape.position_count + POSITION_OFFSET
        # The outputs are products with the embedding: the norm before brings them to one.
        tensors = {
            f"{PREFIX}embed_tokens.weight": self._normal(TIED_DEVIATION, self._vocab_size, hidden),
            f"{PREFIX}embed_positions.weight": self._normal(TIED_DEVIATION, positions, hidden),
            f"{PREFIX}final_layer_norm.weight": self._full(
                1 / (TIED_DEVIATION * math.sqrt(hidden)), hidden
            ),
            f"{PREFIX}final_layer_norm.bias": self._normal(BIAS_DEVIATION, hidden),
        }
        for index in range(shape.layer_count):
            layer = f"{PREFIX}layers.{index}."
            attention = f"{layer}self_attn."
            for name in (f"{layer}self_attn_layer_norm", f"{layer}final_layer_norm"):
                tensors[f"{name}.weight"] = self._full(1.0, hidden)
                tensors[f"{name}.bias"] = self._normal(BIAS_DEVIATION, hidden)
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
                tensors[f"{name}.bias"] = self._normal(BIAS_DEVIATION, rows)
        return tensors

    def _full(self, value: float, size: int) -> Tensor:
        return torch.full((size,), value, **self._kind)

    def _normal(self, deviation: float, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, **self._kind).mul_(deviation)

    def _map(self, rows: int, columns: int, gain: float) -> Tensor:
        """Weights that map inputs of unit variance to outputs of deviation ``gain``."""
        return self._normal(gain / math.sqrt(columns), rows, columns)
