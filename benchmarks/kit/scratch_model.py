"""Random models in a scratch folder, and the threads that compute with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.benchmark import Settings
from benchmarks.document import TOKENIZER_BYTES, corpus
from benchmarks.scratch import scratch_folder
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model


@contextmanager
def torch_threads(*, spare_cores: int = 0) -> Iterator[None]:
    """Sets back how many threads torch has, whatever the body makes of it.

    ``spare_cores`` stay free: one for the daemon is as beside an engine that computes on a GPU.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - spare_cores))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def scratch_model(
    settings: Settings, shape: RandomModelShape, *, scratch_bytes: int
) -> Iterator[tuple[Path, Model]]:
    """A new folder and a model in it; raises BenchmarkError where ``scratch_bytes`` lack."""
    with scratch_folder(settings.folder, scratch_bytes) as folder:
        write_scratch_model(folder / "model", shape)
        yield folder, Model.from_directory(folder / "model")


def write_scratch_model(directory: Path, shape: RandomModelShape) -> None:
    """Random weights, and a tokenizer trained on a little of the corpus."""
    write_random_model(directory, shape, [corpus()[:TOKENIZER_BYTES]])
