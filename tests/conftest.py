"""Fixtures for all tests."""

import gc
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from engine_adapters import file_digests
from engine_adapters.processor import avoid_broken_tiles
from tests.support import marked_files, seeds, unfinished
from tests.support.daemon import DaemonProcess
from tests.support.memory_folder import memory_folder

# No example fails for being slow: the machine may have other things to do.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("patient")

# Before a test computes; engines that tests start inherit it.
avoid_broken_tiles()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis draws from the seed of the run, unless ``--hypothesis-seed`` names another.

    A run that is cut off names the tests under way.
    """
    unfinished.pytest_configure(config)
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(seeds.drawn())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: no collection of cycles looks through it, ever."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that its stage would not find is an error of the collection."""
    marked = [
        (item.nodeid.partition("::")[0], mark.name)
        for item in items
        for mark in item.iter_markers()
    ]
    if sentences := marked_files.strays(marked):
        raise pytest.UsageError("; ".join(sentences))


@pytest.fixture(scope="session", autouse=True)
def _digests_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests remember of weight files is nobody else's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(file_digests.VARIABLE, str(tmp_path_factory.mktemp("digests")))
        yield


def seed_text(config: pytest.Config) -> str:
    """What repeats the choices of a run."""
    seed, of_hypothesis = seeds.drawn(), config.getoption("hypothesis_seed")
    text = f"{seeds.VARIABLE}={seed}"
    return text if of_hypothesis == str(seed) else f"{text} --hypothesis-seed={of_hypothesis}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of Hypothesis uses the seed; of any other it is seen."""
    function = getattr(item, "obj", None)
    seeds.USE.is_asked = getattr(function, "is_hypothesis_test", False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure says which seed repeats it, if chance had a part in it."""
    report = yield
    if report.failed and seeds.USE.is_asked:
        report.sections.append(("seed", seed_text(item.config)))
    return report


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A formatted, running daemon with two small devices, of the test's own.

    For tests that start, stop, kill or fill it, or look at all that it has.
    """
    with DaemonProcess(tmp_path) as process:
        yield process


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder for an index that need not be durable."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that tests share: each has a namespace of its own, ``salt=request.node.name``.

    Its index is in memory, its devices are not: not every kernel has O_DIRECT there.
    """
    devices = tmp_path_factory.mktemp("shared-daemon")
    with (
        memory_folder() as folder,
        DaemonProcess(devices, overrides={"store": {"index": str(folder / "index")}}) as process,
    ):
        yield process
