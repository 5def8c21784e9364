from pathlib import Path

import pytest
import torch

from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from tests.engine_adapters.server.lab import POSITIONS, TEXT, ServerLab


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_profiles(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the user has measured decides what a test stores."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("served") / "tiny"
    shape = RandomModelShape(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        layer_count=2,
        head_count=4,
        kv_head_count=2,
        position_count=POSITIONS,
    )
    write_random_model(directory, shape, [TEXT])
    return directory


@pytest.fixture(scope="session")
def served(model_directory: Path) -> Model:
    return Model.from_directory(model_directory)


@pytest.fixture
def lab(served: Model, model_directory: Path) -> ServerLab:
    return ServerLab(served, model_directory)
