"""Tests of real engines need vLLM, which ``make test-vllm`` installs apart."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.vllm.tiny_model import make_model
from tests.engine_adapters.vllm.real_engines import REAL_ENGINES
from tests.support.daemon import DaemonProcess

HAS_VLLM = importlib.util.find_spec("vllm") is not None
NEEDS_VLLM = (*REAL_ENGINES, "test_engine_config", "test_scheduler_", "test_tier_contract")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_VLLM:
        return
    for item in items:
        if item.path.name.startswith(NEEDS_VLLM) and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason="needs vLLM: make test-vllm"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def heads_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose keys and values are larger than its layer inputs."""
    return make_model(tmp_path_factory.mktemp("heads"), num_key_value_heads=4)


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as process:
        yield process
