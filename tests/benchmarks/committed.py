"""Whether the committed results of a simulation are what the code gives now.

A simulation measures nothing, so its results change with the code alone: a change of the planner
or of the cost model comes with new files. Provenance (commit, date, machine) is not compared.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.__main__ import TEXT_WIDTH
from benchmarks.benchmark import Settings
from benchmarks.report import Report, Series
from kvstored.evidence import Provenance, gather_provenance

ROOT = Path(__file__).parents[2]
SAMPLE_TOLERANCE = 1e-9
"""Relative: mathematical libraries may differ in a last digit."""


def simulation_settings() -> Settings:
    """Settings of ``--simulate``, with a console whose text can be read (``printed``)."""
    return Settings(
        quick=False,
        folder=Path("unused"),
        seed=0,
        console=Console(file=io.StringIO(), width=TEXT_WIDTH),
        parts=("simulate",),
    )


def printed(settings: Settings) -> str:
    """What the console was given until now."""
    assert isinstance(settings.console.file, io.StringIO)
    return settings.console.file.getvalue()


def command(name: str) -> str:
    """What makes the JSON file of a simulation."""
    return f"python -m benchmarks {name} --simulate --seed 0 --json {json_path(name)}"


def json_path(name: str) -> Path:
    """Relative to the root of the repository."""
    return Path("docs", "results", f"{name}_simulate.json")


def check_samples(name: str, series: Sequence[Series]) -> None:
    """Fails where the committed file has other samples for these keys, or not these keys."""
    committed = _document(name)["samples"]
    for one in series:
        now = pytest.approx(list(one.samples), rel=SAMPLE_TOLERANCE, abs=0)
        assert committed.get(one.key) == now, _remedy(name, f"the series {one.key}")


def check_all(name: str, series: Sequence[Series], text: str) -> None:
    """Fails where the JSON file or the text file differs in anything but provenance.

    ``text`` is what the simulation printed; the table of all series follows it.
    """
    check_samples(name, series)
    report = Report(
        benchmark=name,
        quick=False,
        provenance=gather_provenance(command(name)),
        series=tuple(series),
        parts=("simulate",),
    )
    document, now = _document(name), json.loads(report.to_json())
    assert _without_numbers(document) == _without_numbers(now), _remedy(name, "the head")
    assert list(document["samples"]) == list(now["samples"]), _remedy(name, "the list of series")
    figures = pytest.approx(report.figures, rel=SAMPLE_TOLERANCE, abs=0)
    assert document["figures"] == figures, _remedy(name, "a figure")
    committed = (ROOT / json_path(name)).with_suffix(".txt").read_text()
    lines = set(committed.splitlines())
    missing = [line for line in (*text.splitlines(), *_rows(report)) if line not in lines]
    assert missing == [], _remedy(name, "the text")
    assert text in committed, _remedy(name, "the order of the text")


def _without_numbers(document: dict[str, Any]) -> dict[str, Any]:
    """What is compared exactly: no numbers, and of the provenance the command alone."""
    origin = {field.name for field in fields(Provenance)} - {"command"}
    left_out = {"figures", "samples"} | origin
    return {key: value for key, value in document.items() if key not in left_out}


def _rows(report: Report) -> list[str]:
    """Lines of the report's table that have a number."""
    console = Console(file=io.StringIO(), width=TEXT_WIDTH)
    console.print(report.table())
    assert isinstance(console.file, io.StringIO)
    keys = {one.key for one in report.series}
    lines = console.file.getvalue().splitlines()
    return [line for line in lines if line.split(" ", 1)[0] in keys]


def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / json_path(name)).read_text())
    return document


def _remedy(name: str, what: str) -> str:
    text_path = json_path(name).with_suffix(".txt")
    return (
        f"{what} of {json_path(name)} or {text_path.name} is not what the code gives now; "
        f"write both files again: {command(name)} > {text_path}"
    )
