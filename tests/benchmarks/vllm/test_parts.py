from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.registry import find_benchmark
from benchmarks.report import Series
from benchmarks.vllm import run
from benchmarks.vllm.restore import FIGURES
from engine_adapters.vllm.testing.errors import EngineError

ALL = ["restore", "disturbed", "steps", "waiting", "bfloat16", "native", "pic", "server"]


def settings(is_quick: bool, parts: tuple[str, ...]) -> Settings:
    return Settings(
        quick=is_quick, folder=Path(), seed=1, console=Console(file=StringIO()), parts=parts
    )


def test_every_figure_belongs_to_a_part() -> None:
    benchmark = find_benchmark("vllm")
    assert list(benchmark.parts) == ALL
    assert "prefix_vs_native_fs_ttft" in benchmark.promised(("native",))
    assert set(FIGURES) < set(benchmark.figures)


@pytest.mark.parametrize(
    ("is_quick", "parts", "ran"),
    [
        (True, (), ["restore", "steps", "waiting", "native", "pic", "server"]),
        (False, (), ALL),
        (True, ("bfloat16",), ["bfloat16"]),
    ],
)
def test_chosen_parts_run(
    monkeypatch: pytest.MonkeyPatch, is_quick: bool, parts: tuple[str, ...], ran: list[str]
) -> None:
    def part_of(name: str) -> run.Part:
        one = (Series(key=name, unit="s", samples=(1.0,)),)
        return run.Part(figures=(), run=lambda *_: one, is_quick=run.PARTS[name].is_quick)

    kept: list[list[str]] = []
    chosen = replace(
        settings(is_quick, parts), keep=lambda found: kept.append([one.key for one in found])
    )
    monkeypatch.setattr(run, "PARTS", {name: part_of(name) for name in run.PARTS})
    assert [series.key for series in run.run(chosen)] == ran
    assert kept == [ran[:count] for count in range(1, len(ran) + 1)]


def test_a_quick_run_ended_without_figures_that_it_never_measures() -> None:
    """Bug: after ten minutes there was a traceback and no result."""
    benchmark = find_benchmark("vllm")
    left_out = set(benchmark.promised(())) - set(benchmark.promised((), quick=True))
    assert left_out == set(run.PARTS["disturbed"].figures)
    assert benchmark.promised(("disturbed",), quick=True) == run.PARTS["disturbed"].figures


def test_engine_that_ends_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> tuple[Series, ...]:
        raise EngineError("the engine ended")

    monkeypatch.setattr(run, "PARTS", {"restore": run.Part(figures=(), run=end)})
    with pytest.raises(BenchmarkError, match="the engine ended"):
        run.run(settings(True, ()))
