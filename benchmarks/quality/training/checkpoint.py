"""The trained model as the runner loads it, and a note of how it came about."""

import json
import platform
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.quality.training.network import Llama
from benchmarks.quality.training.plan import Plan
from benchmarks.quality.training.prepared import Prepared
from benchmarks.quality.training.recall import recall_by_length
from benchmarks.quality.training.trainer import Trainer
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE

CONFIG_FILE = "config.json"
NOTE_FILE = "training.json"
CHECKPOINT_BYTES_MAX = 10_000_000
"""Of the weights: they are part of the repository."""


def write_checkpoint(
    directory: Path, network: Llama, trainer: Trainer, plan: Plan, prepared: Prepared
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
    prepared.tokenizer.save(str(directory / TOKENIZER_FILE))
    note = {
        "program": "python -m benchmarks.quality.training",
        "parameters": sum(each.numel() for each in tensors.values()),
        "seed": plan.seed,
        "steps": trainer.step,
        "tokens": plan.tokens(trainer.step),
        "recall_by_positions": {
            str(positions): round(share, 3)
            for positions, share in recall_by_length(network, plan, prepared).items()
        },
        "seconds": round(trainer.seconds),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "text_tokens": len(prepared.tokens),
        "text_characters": sum(prepared.sources.values()),
        "text_characters_by_package": prepared.sources,
    }
    (directory / NOTE_FILE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
