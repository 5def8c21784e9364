from pathlib import Path

import pytest

from benchmarks.quality.held_out import held_out_texts
from benchmarks.training.network import Llama
from tests.benchmarks.quality.small import SHAPE, write_small_model, write_tokenizer


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model and a tokenizer that has words for records."""
    directory = tmp_path_factory.mktemp("small")
    write_tokenizer(directory, [held_out_texts()["documents"]])
    write_small_model(directory, Llama(SHAPE, seed=5))
    return directory
