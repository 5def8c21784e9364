"""A model that is too small to have learned anything, of the family that is trained."""

import json
from pathlib import Path

from safetensors.torch import save_file

from benchmarks.training.network import Llama, NetworkShape
from engine_adapters.runner.model.random_model import train_tokenizer
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE

SHAPE = NetworkShape(
    vocab_size=1000,
    hidden_size=32,
    intermediate_size=48,
    layer_count=2,
    head_count=2,
    position_count=512,
)


def write_small_model(directory: Path, network: Llama) -> None:
    """A checkpoint without a tokenizer."""
    save_file(network.checkpoint(), directory / SINGLE_FILE)
    (directory / "config.json").write_text(json.dumps(network.shape.config_fields()))


def write_tokenizer(directory: Path, texts: list[str]) -> None:
    train_tokenizer(texts, vocab_size=SHAPE.vocab_size).save(str(directory / TOKENIZER_FILE))
