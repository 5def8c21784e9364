"""Which files test the pure parts: those that run under coverage's tracer.

The pure parts are listed in ``pyproject.toml`` (``tool.coverage.run``). A module's own tests have
its name: ``kvstored/store/read/plan.py`` is tested by ``tests/kvstored/store/test_plan*.py``.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHER_NAMES = (
    "tests/engine_adapters/test_file_digests.py",
    "tests/engine_adapters/test_breaker.py",
    "tests/engine_adapters/restore/testing/test_oracle.py",
    "tests/engine_adapters/restore/testing/test_virtual_run.py",
    "tests/engine_adapters/runner/model/test_config_file.py",
    "tests/engine_adapters/runner/model/test_random_model.py",
    "tests/engine_adapters/runner/model/test_weights.py",
    "tests/kvstored/store/index/test_entry.py",
)
"""Tests of pure modules that have a name of their own, for several modules together."""
UNTRACED = (
    "tests/benchmarks/cake/test_measured.py",
    "tests/benchmarks/cake/test_plots.py",
    "tests/engine_adapters/codecs/test_error_bounds.py",
    "tests/engine_adapters/restore/test_changing_machine.py",
    "tests/engine_adapters/restore/test_restoration.py",
    "tests/kvstored/io/test_schedule_simulated.py",
)
"""Long runs of pure modules and of what lies around them: other tests reach the same branches.
Single tests of that kind have a marker, ``tests/support/untraced.py``."""
PACKAGES_IN_FOLDERS = ("client/", "protos/")
"""Folders that are no part of the name of the packages in them."""


def pure_test_files() -> list[str]:
    """Paths from the root, sorted, each once."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        run = tomllib.load(file)["tool"]["coverage"]["run"]
    found = set(OTHER_NAMES)
    for pattern in run["include"]:
        found.update(tests_of(pattern))
    return sorted(found.difference(UNTRACED))


def tests_of(pattern: str) -> Iterator[str]:
    """Tests of one entry of coverage's ``include``: a module, or all modules of a package."""
    for prefix in PACKAGES_IN_FOLDERS:
        pattern = pattern.removeprefix(prefix)
    path = Path("tests", pattern)
    files = (
        (ROOT / path.parent).glob("test_*.py")
        if path.name == "*"
        else (ROOT / path.parent).glob(f"test_{path.stem}*.py")
    )
    yield from (str(file.relative_to(ROOT)) for file in files)
