from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.cake import BENCHMARK, simulate
from benchmarks.cake.measured import run as measured
from benchmarks.report import Series

MEASURED = ["grid", "fluctuation", "adaptive", "check", "disturbed"]


def series(key: str) -> tuple[Series, ...]:
    return (Series(key=key, unit="", samples=(1.0,)),)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), [*MEASURED]),
        (("check", "grid"), ["grid", "check"]),
        (("simulate",), ["simulate"]),
        (("adaptive", "simulate"), ["adaptive", "simulate"]),
    ],
)
def test_what_was_asked_for_is_run_and_without_a_word_everything_is_measured(
    monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], expected: list[str]
) -> None:
    monkeypatch.setattr(
        measured,
        "run",
        lambda settings, parts: tuple(one for part in parts for one in series(part)),
    )
    monkeypatch.setattr(simulate, "simulate", lambda settings: series("simulate"))
    settings = Settings(
        quick=True, folder=Path("unused"), seed=0, console=Console(quiet=True), parts=asked
    )
    assert [one.key for one in BENCHMARK.run(settings)] == expected


def test_all_parts_together_promise_what_the_benchmark_does() -> None:
    assert set(BENCHMARK.promised(MEASURED)) == set(BENCHMARK.figures)
    assert len(BENCHMARK.promised(MEASURED)) == len(BENCHMARK.figures)
