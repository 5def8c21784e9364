"""Models of random weights, made on the device: no file could be read in time."""

import math

import torch
from torch import Tensor

from engine_adapters.runner.model.llama_weights import assemble_llama
from engine_adapters.runner.model.model_config import Family, ModelConfig
from engine_adapters.runner.model.model_weights import ModelWeights
from engine_adapters.runner.model.opt_weights import POSITION_OFFSET, PREFIX, assemble_opt
from engine_adapters.runner.model.random_model import (
    BIAS_DEVIATION,
    BRANCH_GAIN,
    SCORE_GAIN,
    TIED_DEVIATION,
)
from engine_adapters.runner.model.tensor_pool import TensorPool


def random_weights(config: ModelConfig, device: torch.device, *, seed: int = 0) -> ModelWeights:
    """Weights in the dtype of ``config``, scaled as those of ``random_model``."""
    drawn = _DeviceTensors(config, device, seed)
    if config.family is Family.LLAMA:
        return assemble_llama(TensorPool(drawn.llama()), config)
    return assemble_opt(TensorPool(drawn.opt()), config)


class _DeviceTensors:
    """Draws tensors by the names of checkpoints."""

    def __init__(self, config: ModelConfig, device: torch.device, seed: int) -> None:
        self._config = config
        self._device = device
        self._dtype: torch.dtype = getattr(torch, config.dtype)
        self._generator = torch.Generator(device).manual_seed(seed)

    def llama(self) -> dict[str, Tensor]:
        """All tensors of a Llama."""
        config, hidden = self._config, self._config.hidden_size
        inner, states = config.intermediate_size, config.kv_head_count * config.head_dim
        tensors = {
            "model.embed_tokens.weight": self._normal(1.0, config.vocab_size, hidden),
            "model.norm.weight": self._full(1.0, hidden),
            "lm_head.weight": self._map(config.vocab_size, hidden, 1.0),
        }
        for index in range(config.layer_count):
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
        """All tensors of an OPT."""
        config, hidden = self._config, self._config.hidden_size
        inner, positions = config.intermediate_size, config.position_count + POSITION_OFFSET
        tensors = {
            f"{PREFIX}embed_tokens.weight": self._normal(TIED_DEVIATION, config.vocab_size, hidden),
            f"{PREFIX}embed_positions.weight": self._normal(TIED_DEVIATION, positions, hidden),
            # Outputs are products with the embedding: the norm before brings them to one.
            **self._norm("final_layer_norm", 1 / (TIED_DEVIATION * math.sqrt(hidden))),
        }
        for index in range(config.layer_count):
            layer = f"layers.{index}."
            tensors |= self._norm(f"{layer}self_attn_layer_norm", 1.0)
            tensors |= self._norm(f"{layer}final_layer_norm", 1.0)
            for name, rows, columns, gain in (
                ("self_attn.q_proj", hidden, hidden, SCORE_GAIN),
                ("self_attn.k_proj", hidden, hidden, SCORE_GAIN),
                ("self_attn.v_proj", hidden, hidden, 1.0),
                ("self_attn.out_proj", hidden, hidden, BRANCH_GAIN),
                ("fc1", inner, hidden, 1.0),
                ("fc2", hidden, inner, BRANCH_GAIN),
            ):
                tensors[f"{PREFIX}{layer}{name}.weight"] = self._map(rows, columns, gain)
                tensors[f"{PREFIX}{layer}{name}.bias"] = self._normal(BIAS_DEVIATION, rows)
        return tensors

    def _norm(self, name: str, gain: float) -> dict[str, Tensor]:
        hidden = self._config.hidden_size
        return {
            f"{PREFIX}{name}.weight": self._full(gain, hidden),
            f"{PREFIX}{name}.bias": self._normal(BIAS_DEVIATION, hidden),
        }

    def _full(self, value: float, *shape: int) -> Tensor:
        return torch.full(shape, value, dtype=self._dtype, device=self._device)

    def _map(self, rows: int, columns: int, gain: float) -> Tensor:
        return self._normal(gain / math.sqrt(columns), rows, columns)

    def _normal(self, deviation: float, *shape: int) -> Tensor:
        whole = torch.empty(shape, dtype=self._dtype, device=self._device)
        return whole.normal_(0.0, deviation, generator=self._generator)
