"""The tensors of a model directory, arranged as the forward pass wants them.

Query, key and value projections are fused into one matrix, and so are gate and up:
one multiplication each instead of three and two.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine_adapters.runner.errors import ModelError
from engine_adapters.runner.model_config import ModelConfig

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A linear map: weight [outputs, inputs] and bias [outputs] or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """Weights of one layer; norms have shape [hidden_size]."""

    attention_norm: Tensor
    query_key_value: Projection
    attention_output: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """All weights; ``embedding`` and ``output`` have shape [vocab_size, hidden_size]."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    output: Tensor


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory in a fixed order; raises ModelError."""
    single, index = directory / SINGLE_FILE, directory / INDEX_FILE
    if single.is_file():
        return [single]
    if not index.is_file():
        raise ModelError(f"{directory} holds neither {SINGLE_FILE} nor {INDEX_FILE}")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{index} is not a safetensors index") from error
    paths = [directory / str(name) for name in names]
    for path in paths:
        if path.parent != directory or not path.is_file():
            raise ModelError(f"{index} names {path.name}, which is not in the model directory")
    return paths


def load_weights(
    directory: Path, config: ModelConfig, *, dtype: torch.dtype, device: torch.device
) -> ModelWeights:
    """Reads every tensor of the model; raises ModelError for a missing or unknown one."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(directory):
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                for name in file.keys():  # noqa: SIM118  (the reader is not a mapping)
                    tensors[name] = file.get_tensor(name).to(dtype)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"cannot read {path}: {error}") from error
    return _Assembly(tensors, config).model()


class _Assembly:
    """Takes tensors out of a pool by name and checks the shape of each."""

    def __init__(self, tensors: dict[str, Tensor], config: ModelConfig) -> None:
        self._tensors = tensors
        self._config = config

    def model(self) -> ModelWeights:
        config = self._config
        embedding_shape = (config.vocab_size, config.hidden_size)
        embedding = self._take("model.embed_tokens.weight", *embedding_shape)
        if config.has_tied_embeddings:
            self._tensors.pop("lm_head.weight", None)
            output = embedding
        else:
            output = self._take("lm_head.weight", *embedding_shape)
        weights = ModelWeights(
            embedding=embedding,
            layers=tuple(self._layer(index) for index in range(config.layer_count)),
            final_norm=self._take("model.norm.weight", config.hidden_size),
            output=output,
        )
        # Older checkpoints carry the frequencies, which follow from the config.
        unknown = [name for name in self._tensors if not name.endswith("rotary_emb.inv_freq")]
        if unknown:
            raise ModelError(
                f"the model holds {len(unknown)} unknown tensors, first {min(unknown)}"
            )
        return weights

    def _layer(self, index: int) -> LayerWeights:
        config = self._config
        prefix = f"model.layers.{index}."
        hidden, inner = config.hidden_size, config.intermediate_size
        queries = config.head_count * config.head_dim
        states = config.kv_head_count * config.head_dim
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        return LayerWeights(
            attention_norm=self._take(f"{prefix}input_layernorm.weight", hidden),
            query_key_value=self._fuse(
                [
                    (f"{attention}{name}_proj", rows)
                    for name, rows in (("q", queries), ("k", states), ("v", states))
                ],
                hidden,
                has_bias=config.has_attention_bias,
            ),
            attention_output=self._fuse(
                [(f"{attention}o_proj", hidden)], queries, has_bias=config.has_attention_bias
            ),
            mlp_norm=self._take(f"{prefix}post_attention_layernorm.weight", hidden),
            gate_up=self._fuse(
                [(f"{mlp}gate_proj", inner), (f"{mlp}up_proj", inner)],
                hidden,
                has_bias=config.has_mlp_bias,
            ),
            down=self._fuse([(f"{mlp}down_proj", hidden)], inner, has_bias=config.has_mlp_bias),
        )

    def _fuse(self, parts: list[tuple[str, int]], inputs: int, *, has_bias: bool) -> Projection:
        """One projection whose outputs are those of ``parts`` (name, rows) in order."""
        weights = [self._take(f"{name}.weight", rows, inputs) for name, rows in parts]
        biases = [self._take(f"{name}.bias", rows) for name, rows in parts] if has_bias else []
        return Projection(
            weight=weights[0] if len(weights) == 1 else torch.cat(weights),
            bias=torch.cat(biases) if biases else None,
        )

    def _take(self, name: str, *shape: int) -> Tensor:
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelError(f"the model has no tensor {name}")
        if tuple(tensor.shape) != shape:
            raise ModelError(f"tensor {name} has shape {tuple(tensor.shape)}, expected {shape}")
        return tensor
