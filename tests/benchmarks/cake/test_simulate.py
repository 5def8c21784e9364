import io
from pathlib import Path

from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.cake import BENCHMARK
from benchmarks.report import Report


def settings(*parts: str) -> Settings:
    return Settings(
        quick=True,
        folder=Path("unused"),
        seed=0,
        console=Console(file=io.StringIO(), width=120),
        parts=parts,
    )


def test_it_prints_every_table_beside_the_papers_and_measures_what_it_promises() -> None:
    chosen = settings("simulate")
    series = BENCHMARK.run(chosen)
    report = Report(benchmark="cake", quick=True, command="", series=series, parts=chosen.parts)
    report.check_figures(BENCHMARK.promised(chosen.parts))
    assert all(0 < value < 0.1 for value in report.figures.values())
    least = [each for each in series if each.key.endswith("_over_best_baseline")]
    assert len(least) == 5
    assert all(each.value >= 1 for each in least)
    file = chosen.console.file
    assert isinstance(file, io.StringIO)
    lines = file.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("Table ")] == [
        f"Table {number}" for number in range(3, 8)
    ]
    # Slower than a baseline: one of the paper's cells in table 5, four in table 6, none of ours.
    assert "".join(line for line in lines if " paper " in line).count("!") == 5
    assert not any("!" in line for line in lines if " ours " in line)
    assert all(len(line) <= 120 for line in lines)
