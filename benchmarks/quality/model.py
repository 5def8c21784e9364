"""The small trained Llama that the repository ships, and how it is loaded."""

from pathlib import Path

import torch

from benchmarks.benchmark import BenchmarkError
from engine_adapters.runner.model.weights import SINGLE_FILE

TRAINED_MODEL = Path(__file__).parent / "model"
"""Written by ``python -m benchmarks.quality.training``."""
WINDOW_TOKENS = 256
"""What a conversation may hold; the model was trained at twice as many positions."""
DTYPE = torch.float32
"""Of weights and states: rounding must not be what tells the ways apart."""


def trained_model() -> Path:
    """The directory; raises BenchmarkError where the weights are missing."""
    if not (TRAINED_MODEL / SINGLE_FILE).is_file():
        raise BenchmarkError(
            f"{TRAINED_MODEL} holds no {SINGLE_FILE}; "
            "python -m benchmarks.quality.training makes one"
        )
    return TRAINED_MODEL
