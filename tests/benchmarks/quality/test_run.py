"""The whole benchmark with a model that has learned nothing, and what it says of it."""

import io
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.__main__ import main
from benchmarks.benchmark import Settings
from benchmarks.quality import BENCHMARK
from benchmarks.quality.run import measure
from benchmarks.quality.scale import Scale
from benchmarks.quality.way import Way
from tests.benchmarks.quality.talking import lab_in_memory
from tests.support import scale

TINY = Scale(turns=3, questions=4)


def settings(folder: Path) -> Settings:
    return Settings(quick=True, folder=folder, seed=1, console=Console(file=io.StringIO()))


@scale.at(scale.Scale.QUICK)
def test_all_ways_are_measured(small_model: Path, tmp_path: Path) -> None:
    with lab_in_memory(small_model) as lab:
        found = measure(settings(tmp_path), TINY, lab)
    assert {each.key for each in found.series() if each.is_figure} == set(BENCHMARK.figures)
    assert list(found.perplexities) == ["reference", "documents", "docstrings"]
    for by_way in found.perplexities.values():
        assert list(by_way) == list(Way)
        assert all(value > 1 for value in by_way.values())
    assert {len(hits) for hits in found.hits.values()} == {TINY.questions}


@scale.at(scale.Scale.QUICK)
def test_a_model_that_has_learned_nothing_cannot_tell(
    small_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Through a daemon; nothing is left of it, and no figures are written."""
    # The package has a function of that name.
    module_of_run = import_module("benchmarks.quality.run")
    monkeypatch.setattr(module_of_run, "QUICK", TINY)
    monkeypatch.setattr(module_of_run, "trained_model", lambda: small_model)
    folder, result = tmp_path / "scratch", tmp_path / "quality.json"
    words = ["quality", "--quick", "--folder", str(folder), "--json", str(result), "--seed", "1"]
    assert main(words) == 2
    said = capsys.readouterr()
    assert "this setting cannot tell" in said.err
    assert "perplexity after the first overflow" in " ".join(said.out.split())
    assert not folder.exists()
    assert result.read_text() == ""
