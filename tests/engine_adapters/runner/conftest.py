from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import StateFormat
from tests.engine_adapters.runner.checkpoints import write_llama

CHUNK_TOKENS = 8


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_profiles(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the user has measured decides what a test stores."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GQA checkpoint with two query heads for each key head."""
    path = tmp_path_factory.mktemp("model")
    write_llama(path, num_key_value_heads=2)
    return path


@pytest.fixture(scope="session")
def model(directory: Path) -> Model:
    return Model.from_directory(directory)


@pytest.fixture(scope="session")
def state_format(model: Model, directory: Path) -> StateFormat:
    return StateFormat.of_directory(model, directory, chunk_tokens=CHUNK_TOKENS)


@pytest.fixture(scope="session")
def make_tokens() -> Callable[[int, int], list[int]]:
    """Seeded token ids that the tiny models know: make_tokens(count, seed)."""

    def make(count: int, seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        tokens: list[int] = torch.randint(97, (count,), generator=generator).tolist()
        return tokens

    return make
