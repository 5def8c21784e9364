from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError
from benchmarks.gpu.marked_tests import counts_of, run, series_of
from benchmarks.gpu.scale import FULL
from tests.support.marked_files import ROOT

REPORT = """<testsuites><testsuite errors="1" failures="2" skipped="3" tests="10"/></testsuites>"""


def test_failed_skipped_and_passed_tests_are_counted() -> None:
    found = {one.key: one.value for one in series_of(counts_of(REPORT))}
    assert found == {"gpu_tests_failed": 3, "gpu_tests_passed": 4, "gpu_tests_skipped": 3}
    with pytest.raises(BenchmarkError, match="no test that is marked"):
        series_of(dict.fromkeys(("tests", "failures", "errors", "skipped"), 0))


def test_every_file_with_marked_tests_is_run() -> None:
    """By name: collecting all tests would import what a machine with only PyTorch has not."""
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.gpu" in path.read_text() and path != Path(__file__)
    }
    assert marked == set(FULL.tests)


def test_files_that_cannot_be_collected_are_an_error() -> None:
    with pytest.raises(BenchmarkError, match="pytest ended with status"):
        run(Console(quiet=True), ("tests/no_such_file.py",), limit_s=120.0)
