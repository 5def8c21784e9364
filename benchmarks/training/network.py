"""A Llama as one trains it: parameters by the names of its checkpoints, whole sequences at once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from engine_adapters.runner.model.rotary import RotaryConfig, inverse_frequencies


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """Sizes; embedding and output are one matrix."""

    vocab_size: int
    hidden_size: int = 256
    intermediate_size: int = 640
    layer_count: int = 4
    head_count: int = 4
    position_count: int = 512
    theta: float = 10_000.0
    norm_epsilon: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""
        return self.hidden_size // self.head_count

    @classmethod
    def of_config(cls, fields: Mapping[str, Any]) -> "NetworkShape":
        """From the fields that ``config_fields`` gives; raises KeyError where one is missing."""
        return cls(
            vocab_size=fields["vocab_size"],
            hidden_size=fields["hidden_size"],
            intermediate_size=fields["intermediate_size"],
            layer_count=fields["num_hidden_layers"],
            head_count=fields["num_attention_heads"],
            position_count=fields["max_position_embeddings"],
            theta=fields["rope_parameters"]["rope_theta"],
            norm_epsilon=fields["rms_norm_eps"],
        )

    def config_fields(self) -> dict[str, object]:
        """The fields of ``config.json``; weights are published in bfloat16."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "bos_token_id": None,
            "dtype": "bfloat16",
            "eos_token_id": None,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.position_count,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": self.head_count,
            "num_hidden_layers": self.layer_count,
            "num_key_value_heads": self.head_count,
            "rms_norm_eps": self.norm_epsilon,
            "rope_parameters": {"rope_theta": self.theta, "rope_type": "default"},
            "tie_word_embeddings": True,
            "vocab_size": self.vocab_size,
        }


class Llama(nn.Module):
    """Logits of every position of some sequences. Parameters are drawn from ``seed``."""

    def __init__(self, shape: NetworkShape, *, seed: int) -> None:
        super().__init__()
        self.shape = shape
        self._generator = torch.Generator().manual_seed(seed)
        hidden, inner = shape.hidden_size, shape.intermediate_size
        self.weights = nn.ParameterDict()
        self._add("model.embed_tokens.weight", shape.vocab_size, hidden, deviation=0.02)
        branch = 1 / math.sqrt(2 * shape.layer_count)
        for layer in range(shape.layer_count):
            prefix = f"model.layers.{layer}."
            for name in ("q", "k", "v"):
                self._add(f"{prefix}self_attn.{name}_proj.weight", hidden, hidden)
            self._add(f"{prefix}self_attn.o_proj.weight", hidden, hidden, gain=branch)
            self._add(f"{prefix}mlp.gate_proj.weight", inner, hidden)
            self._add(f"{prefix}mlp.up_proj.weight", inner, hidden)
            self._add(f"{prefix}mlp.down_proj.weight", hidden, inner, gain=branch)
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.weights[_key(f"{prefix}{name}.weight")] = nn.Parameter(torch.ones(hidden))
        self.weights[_key("model.norm.weight")] = nn.Parameter(torch.ones(hidden))
        positions = torch.arange(shape.position_count, dtype=torch.float32)
        frequencies = inverse_frequencies(RotaryConfig(theta=shape.theta), shape.head_dim)
        radians = torch.outer(positions, frequencies)
        self._cosines, self._sines = radians.cos(), radians.sin()

    def checkpoint(self) -> dict[str, Tensor]:
        """Copies of the parameters in bfloat16, by the names of a checkpoint."""
        return {
            key.replace("/", "."): parameter.detach().to(torch.bfloat16).contiguous()
            for key, parameter in self.weights.items()
        }

    def matrices(self) -> list[nn.Parameter]:
        """The projections of all layers."""
        return [each for key, each in self.weights.items() if key.endswith("_proj/weight")]

    def others(self) -> list[nn.Parameter]:
        """The embedding and the norms."""
        return [each for key, each in self.weights.items() if not key.endswith("_proj/weight")]

    def weight(self, name: str) -> Tensor:
        """The parameter of a module by its name in a checkpoint, without ``.weight``."""
        weight: Tensor = self.weights[_key(f"{name}.weight")]
        return weight

    def attention_weights(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Those of queries, keys, values and output: [out, in] each, heads one after the other."""
        prefix = f"model.layers.{layer}.self_attn."
        query, key, value, output = (self.weight(f"{prefix}{name}_proj") for name in "qkvo")
        return query, key, value, output

    def forward(self, inputs: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Logits [sequences, positions, vocab] of ``inputs`` [sequences, positions], int64.

        With ``wanted`` [sequences, positions], bool, only those of its positions [n, vocab].
        """
        embedding = self.weight("model.embed_tokens")
        hidden = embedding[inputs]
        for layer in range(self.shape.layer_count):
            prefix = f"model.layers.{layer}."
            normed = self._norm(f"{prefix}input_layernorm", hidden)
            hidden = hidden + self._attention(f"{prefix}self_attn.", normed)
            normed = self._norm(f"{prefix}post_attention_layernorm", hidden)
            gate = silu(linear(normed, self.weight(f"{prefix}mlp.gate_proj")))
            up = linear(normed, self.weight(f"{prefix}mlp.up_proj"))
            hidden = hidden + linear(gate * up, self.weight(f"{prefix}mlp.down_proj"))
        if wanted is not None:
            hidden = hidden[wanted]
        return linear(self._norm("model.norm", hidden), embedding)

    def _heads(self, prefix: str, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [sequences, heads, positions, head_dim], not rotated."""
        shape = (*normed.shape[:2], self.shape.head_count, self.shape.head_dim)
        queries, keys, values = (
            linear(normed, self.weight(f"{prefix}{name}_proj")).view(shape).transpose(1, 2)
            for name in ("q", "k", "v")
        )
        return queries, keys, values

    def _attention(self, prefix: str, normed: Tensor) -> Tensor:
        queries, keys, values = self._heads(prefix, normed)
        output = scaled_dot_product_attention(
            self._rotate(queries), self._rotate(keys), values, is_causal=True
        )
        return linear(output.transpose(1, 2).flatten(2), self.weight(f"{prefix}o_proj"))

    def _rotate(self, vectors: Tensor) -> Tensor:
        """As ``engine_adapters.runner.model.rotary``: [sequences, heads, positions, head_dim]."""
        count = vectors.shape[2]
        cosines, sines = self._cosines[:count], self._sines[:count]
        first, second = vectors.chunk(2, dim=-1)
        return torch.cat(
            (first * cosines - second * sines, second * cosines + first * sines), dim=-1
        )

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        return rms_norm(hidden, hidden.shape[-1:], self.weight(name), eps=self.shape.norm_epsilon)

    def _add(
        self, name: str, rows: int, columns: int, *, gain: float = 1.0, deviation: float = 0.0
    ) -> None:
        drawn = torch.randn(rows, columns, generator=self._generator)
        scale = deviation or gain / math.sqrt(columns)
        self.weights[_key(name)] = nn.Parameter(drawn * scale)


def _key(name: str) -> str:
    """Modules take no dots in the names of their parameters."""
    return name.replace(".", "/")
