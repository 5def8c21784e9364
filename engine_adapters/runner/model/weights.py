"""The files of a model directory that hold its tensors."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.llama_weights import assemble_llama
from engine_adapters.runner.model.model_config import Family, ModelConfig
from engine_adapters.runner.model.model_weights import ModelWeights
from engine_adapters.runner.model.opt_weights import assemble_opt
from engine_adapters.runner.model.tensor_pool import TensorPool

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


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
    pool = TensorPool(tensors)
    match config.family:
        case Family.LLAMA:
            weights = assemble_llama(pool, config)
        case Family.OPT:
            weights = assemble_opt(pool, config)
    pool.finish()
    return weights
