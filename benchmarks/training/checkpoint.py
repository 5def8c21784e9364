"""A trained model as the runner loads it, and a note of how it came about."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from benchmarks.training.network import Llama, NetworkShape
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE

CONFIG_FILE = "config.json"
NOTE_FILE = "training.json"
CHECKPOINT_BYTES_MAX = 10_000_000
"""Of the weights: they are part of the repository."""

NetworkT = TypeVar("NetworkT", bound=Llama)


def write_checkpoint(
    directory: Path, network: Llama, tokenizer: Tokenizer, note: Mapping[str, object]
) -> None:
    """Fills ``directory`` with config, weights in bfloat16, tokenizer and the note.

    Raises ValueError for a model that is too large.
    """
    tensors = network.checkpoint()
    size = sum(each.numel() * each.element_size() for each in tensors.values())
    if size > CHECKPOINT_BYTES_MAX:
        raise ValueError(f"the model has {size} bytes, more than {CHECKPOINT_BYTES_MAX}")
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / SINGLE_FILE, metadata={"format": "pt"})
    config = json.dumps(dict(sorted(network.shape.config_fields().items())), indent=2)
    (directory / CONFIG_FILE).write_text(config + "\n", encoding="utf-8")
    tokenizer.save(str(directory / TOKENIZER_FILE))
    (directory / NOTE_FILE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


@torch.no_grad()
def load_checkpoint(directory: Path, make: Callable[[NetworkShape], NetworkT]) -> NetworkT:
    """The network that ``write_checkpoint`` left, in float32."""
    config = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
    network = make(NetworkShape.of_config(config))
    for name, tensor in load_file(directory / SINGLE_FILE).items():
        network.weight(name.removesuffix(".weight")).copy_(tensor)
    return network
