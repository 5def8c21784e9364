"""The benchmark at a tiny size: every table, every figure."""

import io
import json
import random
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.tiering import run
from benchmarks.tiering.decisions import measure_decisions
from benchmarks.tiering.grid import Scale
from benchmarks.tiering.policies import ONLY_SIMULATED, PolicyName


def settings(tmp_path: Path, **values: object) -> Settings:
    options = {"parts": (), "traces": (), "plots": None, **values}
    return Settings(
        quick=True,
        folder=tmp_path,
        seed=1,
        console=Console(file=io.StringIO(), width=120),
        **options,  # type: ignore[arg-type]
    )


def write_trace(path: Path) -> Path:
    dice = random.Random(1)
    lines = []
    for number in range(80):
        first = 100 * dice.randrange(40)
        line = {
            "timestamp": number * 500,
            "input_length": 512 * 30,
            "output_length": 50,
            "hash_ids": [0, *range(first + 1, first + dice.randrange(20, 40))],
        }
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines))
    return path


def test_the_papers_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "QUICK", Scale(sessions=25))
    chosen = settings(tmp_path, parts=(run.PAPER,))
    series = run.run(chosen)
    figures = {one.key: one.value for one in series if one.is_figure}
    assert sorted(figures) == sorted(run.BENCHMARK.promised(chosen.parts))
    assert all(0 <= value <= 100 for key, value in figures.items() if key.startswith("hit_"))
    assert len({one.key for one in series}) == len(series)
    assert isinstance(chosen.console.file, io.StringIO)
    text = chosen.console.file.getvalue()
    assert all(f"Figure {number}" in text for number in (13, 21, 22, 23, 24))
    assert "queue" in text


def test_a_trace_with_a_picture(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "small.jsonl")
    chosen = settings(tmp_path, parts=(run.TRACES,), traces=(trace,), plots=tmp_path)
    series = run.run(chosen)
    assert [one.key for one in series if one.is_figure] == list(run.PARTS[run.TRACES])
    assert (tmp_path / "tiering_small.png").read_bytes().startswith(b"\x89PNG")


def test_traces_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="--trace FILE"):
        run.run(settings(tmp_path))


def test_decisions_of_every_policy_of_the_daemon_are_timed() -> None:
    series = measure_decisions(1, key_count=5000, rounds=50)
    figure = series[-1]
    assert figure.is_figure
    assert len(series) == len(figure.samples) + 1
    assert len(figure.samples) == len(PolicyName) - len(ONLY_SIMULATED)
    assert figure.value == max(figure.samples) > 0
