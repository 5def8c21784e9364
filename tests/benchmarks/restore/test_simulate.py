import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.benchmark import BenchmarkError
from benchmarks.report import Series
from benchmarks.restore import BENCHMARK
from benchmarks.restore.paper import experiments
from benchmarks.restore.paper_ttft import ttft_experiments
from benchmarks.restore.simulate import FIGURES, own_settings, series, simulate
from tests.benchmarks.committed import check_all, printed, simulation_settings


def test_the_figures_are_counts_of_the_rows() -> None:
    found = {one.key: one for one in series(experiments(), ttft_experiments())}
    assert [key for key, one in found.items() if one.is_figure] == list(FIGURES)
    assert found["schedule_matches_paper"].value == 2
    counted = {
        figure: [
            claim.difference(setting.speedup(claim))
            for experiment in paper
            for setting in experiment.settings
            for claim in setting.claims
            if claim.is_counted
        ]
        for figure, paper in (
            ("speedup_in_paper_range", experiments()),
            ("ttft_speedup_in_paper_range", ttft_experiments()),
        )
    }
    for figure, differences in counted.items():
        assert found[figure].value == differences.count(0.0) / len(differences)
    assert found["speedup_in_paper_range"].value < found["speedup_near_paper_range"].value < 1
    speedups = [key for key in found if "_vs_" in key and not key.endswith("_vs_bound")]
    assert sum(len(found[key].samples) for key in speedups) == sum(map(len, counted.values()))


@pytest.fixture(scope="module")
def simulated() -> tuple[tuple[Series, ...], str]:
    """What the simulation found and printed."""
    settings = simulation_settings()
    return simulate(settings), printed(settings)


def test_the_committed_results_are_what_the_code_gives(
    simulated: tuple[tuple[Series, ...], str],
) -> None:
    check_all("restore", *simulated)


def test_what_is_missed_or_left_out_is_named(simulated: tuple[tuple[Series, ...], str]) -> None:
    _, text = simulated
    outside = text.split("Outside of the paper's ranges: ")[1].split("\n\n")[0].splitlines()
    missed, counted = map(int, outside[0].split(" of "))
    assert len(outside[2:]) == missed < counted
    assert missed == sum(line.endswith(" outside") for line in text.splitlines())
    assert "* figure 14: " in text.split("Not simulated:")[1]


def test_platforms_and_models_that_were_asked_for_are_shown_besides_the_papers() -> None:
    asked = replace(simulation_settings(), platforms=("own,100,16,2",), models=("tiny,8,512",))
    simulate(asked)
    assert "tiny own 2 SSD 1024" in printed(asked)
    assert "tiny own 2 SSD 16384" in printed(asked)
    assert max(map(len, printed(asked).splitlines())) <= 120


def test_the_other_side_is_the_papers_when_only_one_is_named() -> None:
    assert own_settings((), ()) == ()
    assert len(own_settings(("A30,1", "A30,2"), ())) == 2 * 3 * 5
    assert len(own_settings((), ("tiny,8,512",))) == 5 * 5
    with pytest.raises(BenchmarkError, match="is no platform"):
        simulate(replace(simulation_settings(), platforms=("B200",)))


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
