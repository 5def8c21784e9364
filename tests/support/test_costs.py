"""What tests cost, written down."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.costs import Writer


def phase(when: Any, duration_s: float) -> pytest.TestReport:
    return pytest.TestReport(
        "file.py::test", ("file.py", 1, "test"), {}, "passed", None, when, (), duration_s
    )


def test_a_worker_that_dies_is_no_error_of_the_writer(tmp_path: Path) -> None:
    """Bug: the report of a dead worker's test ended the whole run with an internal error."""
    writer = Writer(tmp_path / "costs.jsonl")
    for when, duration_s in (("setup", 1.0), ("???", 0.0), ("call", 2.0)):
        writer.pytest_runtest_logreport(phase(when, duration_s))
    writer.pytest_sessionfinish()
    cost = json.loads((tmp_path / "costs.jsonl").read_text())
    assert (cost["setup_s"], cost["call_s"], cost["teardown_s"]) == (1.0, 2.0, 0.0)
