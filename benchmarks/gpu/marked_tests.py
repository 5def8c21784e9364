"""The tests that are marked ``gpu``, run by pytest in a process of its own."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from benchmarks.benchmark import BenchmarkError
from benchmarks.report import Series
from kvstored.evidence.checkout import ROOT

FIGURES = ("gpu_tests_failed",)
COUNTS = ("tests", "failures", "errors", "skipped")
ENDED, SOME_FAILED = 0, 1
"""Exit statuses of pytest that leave a report of all tests."""


def run(console: Console, paths: tuple[str, ...], *, limit_s: float) -> list[Series]:
    """Counts of them, and the names of those that failed; raises BenchmarkError."""
    with tempfile.TemporaryDirectory(prefix="kvstored-gpu-") as folder:
        report = Path(folder, "report.xml")
        # No plug-in but those of the project's own configuration takes part.
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
        command += [f"--basetemp={folder}/tests", f"--junitxml={report}", *paths]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"the marked tests did not end within {limit_s:.0f} s") from error
        if done.returncode not in {ENDED, SOME_FAILED}:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise BenchmarkError(f"pytest ended with status {done.returncode}: {' '.join(last)}")
        text = report.read_text()
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR", "SKIPPED")):
            console.print(line, highlight=False, markup=False)
    return series_of(counts_of(text))


def counts_of(report: str) -> dict[str, int]:
    """How many tests there were, failed and were skipped, by a report in JUnit's form."""
    # Written by the process that was just run.
    suites = ElementTree.fromstring(report).iter("testsuite")
    totals = dict.fromkeys(COUNTS, 0)
    for suite in suites:
        for name in COUNTS:
            totals[name] += int(suite.get(name, "0"))
    return totals


def series_of(counts: Mapping[str, int]) -> list[Series]:
    """The figure counts those that failed, in whatever phase."""
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    if not counts["tests"]:
        raise BenchmarkError("pytest found no test that is marked gpu")
    return [
        Series(key=FIGURES[0], unit="tests", samples=(float(failed),), is_figure=True),
        Series(key="gpu_tests_passed", unit="tests", samples=(float(passed),)),
        Series(key="gpu_tests_skipped", unit="tests", samples=(float(counts["skipped"]),)),
    ]
