import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.restore import BENCHMARK
from benchmarks.restore.paper import experiments
from benchmarks.restore.simulate import FIGURES, own_settings, series, simulate

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "restore_simulate.json"


def settings(*, platforms: tuple[str, ...] = (), models: tuple[str, ...] = ()) -> Settings:
    return Settings(
        quick=True,
        folder=Path("unused"),
        seed=0,
        console=Console(file=StringIO(), width=120),
        parts=("simulate",),
        platforms=platforms,
        models=models,
    )


def test_the_figures_are_counts_of_the_rows() -> None:
    found = {one.key: one for one in series(experiments())}
    assert [key for key, one in found.items() if one.is_figure] == list(FIGURES)
    assert found["schedule_matches_paper"].value == 2
    counted = [
        claim.difference(setting.speedup(claim))
        for experiment in experiments()
        for setting in experiment.settings
        for claim in setting.claims
        if claim.is_counted
    ]
    share = counted.count(0.0) / len(counted)
    assert found["speedup_in_paper_range"].value == share
    assert 0.7 < share <= found["speedup_near_paper_range"].value < 1
    speedups = [key for key in found if "_vs_" in key and not key.endswith("_vs_bound")]
    assert sum(len(found[key].samples) for key in speedups) == len(counted)


def test_the_results_in_the_repository_are_what_the_code_gives() -> None:
    """Nothing is measured, so a change of the planner must come with new results."""
    samples = json.loads(RESULTS.read_text())["samples"]
    assert samples == {one.key: pytest.approx(list(one.samples)) for one in series(experiments())}


def test_platforms_and_models_that_were_asked_for_are_shown_besides_the_papers() -> None:
    asked = settings(platforms=("own,100,16,2",), models=("tiny,8,512",))
    simulate(asked)
    assert isinstance(asked.console.file, StringIO)
    text = asked.console.file.getvalue()
    assert "tiny own 2 SSD 1024" in text
    assert "tiny own 2 SSD 16384" in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_other_side_is_the_papers_when_only_one_is_named() -> None:
    assert own_settings((), ()) == ()
    assert len(own_settings(("A30,1", "A30,2"), ())) == 2 * 3 * 5
    assert len(own_settings((), ("tiny,8,512",))) == 5 * 5
    with pytest.raises(BenchmarkError, match="is no platform"):
        simulate(settings(platforms=("B200",)))


def test_the_option_chooses_the_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert command.main(["restore", "--simulate", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert document["parts"] == ["simulate"]
    assert tuple(document["figures"]) == BENCHMARK.promised(["simulate"])
    assert "that were asked for" not in capsys.readouterr().out
    assert command.main(["restore", "--simulate", "--model", "tiny,8,512"]) == 0
    assert "tiny A30 DRAM" in capsys.readouterr().out


def test_a_platform_without_simulate_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["restore", "--platform", "A30"])
    assert "add --simulate" in capsys.readouterr().err
