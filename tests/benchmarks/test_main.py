import json
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.benchmark import Benchmark, BenchmarkError, Settings
from benchmarks.registry import MODULES, find_benchmark
from benchmarks.report import Series
from kvstored.evidence import Provenance
from tests.support.scale import Scale, at
from tests.support.waiting import PATIENCE_S


def stand_in(monkeypatch: pytest.MonkeyPatch, benchmark: Benchmark) -> None:
    monkeypatch.setattr(command, "find_benchmark", lambda name: benchmark)


def measured(settings: Settings) -> tuple[Series, ...]:
    samples = (float(settings.quick), float(settings.seed))
    return (Series(key="speed", unit="GB/s", samples=samples, is_figure=True),)


def refused(settings: Settings) -> tuple[Series, ...]:
    raise BenchmarkError(f"no room in {settings.folder}")


def test_every_registered_benchmark_has_its_name_and_figures() -> None:
    for name in MODULES:
        assert find_benchmark(name).name == name
        assert find_benchmark(name).figures


def test_it_writes_json_and_prints_seed_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, Benchmark(name="storage", figures=("speed",), run=measured))
    file = tmp_path / "result.json"
    assert command.main(["storage", "--quick", "--seed", "3", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert document["command"] == f"python -m benchmarks storage --quick --seed 3 --json {file}"
    assert document.keys() > {field.name for field in fields(Provenance)}
    assert document["figures"] == {"speed": 2.0}
    assert document["samples"] == {"speed": [1.0, 3.0]}
    assert (document["benchmark"], document["quick"]) == ("storage", True)
    output = capsys.readouterr().out
    assert "seed: 3" in output
    assert "speed" in output


def test_parts_promise_their_own_figures_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: list[tuple[str, ...]] = []

    def run(settings: Settings) -> tuple[Series, ...]:
        chosen.append(settings.parts)
        return measured(settings)

    parts = {"cold": ("speed",), "warm": ("other",)}
    benchmark = Benchmark(name="storage", figures=("speed", "other"), run=run, parts=parts)
    stand_in(monkeypatch, benchmark)
    file = tmp_path / "result.json"
    assert command.main(["storage", "--part", "cold", "--json", str(file)]) == 0
    assert chosen == [("cold",)]
    assert json.loads(file.read_text())["parts"] == ["cold"]
    with pytest.raises(ValueError, match="promises the figures"):
        command.main(["storage", "--part", "warm"])
    with pytest.raises(ValueError, match="promises the figures"):
        command.main(["storage"])
    assert command.main(["storage", "--part", "hot"]) == 1
    assert "no part 'hot'" in capsys.readouterr().err


def test_a_run_that_ends_early_leaves_what_it_measured_beside_the_last_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(settings: Settings) -> tuple[Series, ...]:
        settings.keep(measured(settings))
        return refused(settings) if settings.quick else measured(settings)

    stand_in(monkeypatch, Benchmark(name="storage", figures=("speed",), run=run))
    file, partial = tmp_path / "result.json", tmp_path / "result.partial"
    assert command.main(["storage", "--json", str(file)]) == 0
    before = file.read_text()
    assert not partial.exists()
    assert command.main(["storage", "--quick", "--json", str(file)]) == 1
    assert file.read_text() == before
    assert json.loads(partial.read_text())["quick"] is True


def test_a_benchmark_that_cannot_run_fails_with_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, Benchmark(name="storage", figures=(), run=refused))
    assert command.main(["storage", "--folder", "nowhere"]) == 1
    assert capsys.readouterr().err == "benchmark storage: no room in nowhere\n"


@at(Scale.QUICK)
def test_a_benchmark_that_was_ended_left_its_daemon_behind(tmp_path: Path) -> None:
    """Its scratch folder too, and what it had changed of the system."""
    folder = tmp_path / "scratch"
    words = ["-m", "benchmarks", "decode", "--quick", "--folder", str(folder)]
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    # Until it measures.
    next(line for line in process.stdout if line.startswith("batch 1"))
    process.terminate()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    process.stdout.close()
    assert not folder.exists()
    assert not [each for each in command_lines() if str(folder) in each]


def command_lines() -> list[str]:
    """Of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return found


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["speed"])
    assert "invalid choice" in capsys.readouterr().err
