"""Tests of real engines need vLLM, which ``make test-vllm`` installs apart."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_adapters.vllm.testing.tiny_model import make_model
from tests.engine_adapters.vllm.real_engines import REAL_ENGINES
from tests.support.daemon import DaemonProcess

FOLDER = Path(__file__).parent
HAS_VLLM = importlib.util.find_spec("vllm") is not None
NEEDS_VLLM = (
    *REAL_ENGINES,
    "test_connector",
    "test_engine_config",
    "test_gpu_layouts",
    "test_router_events",
    "test_scheduler_",
    "test_tier_contract",
    "test_tier_options",
)
LONGEST_FIRST = (
    "test_engine_parallel",
    "test_engine_compiled",
    "test_engine_server",
    "test_engine_failures",
)
"""What two workers begin with, so that neither waits long for the other in the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs vLLM, and begins with the files that take long."""
    for item in items:
        if FOLDER in item.path.parents and item.path.name.startswith(NEEDS_VLLM):
            item.add_marker(pytest.mark.vllm)
            if not HAS_VLLM:
                item.add_marker(pytest.mark.skip(reason="needs vLLM: make test-vllm"))
    if HAS_VLLM:
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    name = item.path.stem
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.option.markexpr.startswith("vllm"):
        terminalreporter.line("The tests of this folder that need no vLLM are run by make test.")


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
