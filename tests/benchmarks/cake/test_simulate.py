"""The simulation of Cake's tables and of its earlier version, and its committed results."""

from dataclasses import replace

import pytest

from benchmarks.cake import BENCHMARK
from benchmarks.cake import simulate as simulation
from benchmarks.cake.paper_tables import TABLES
from benchmarks.report import Report
from kvstored.evidence import gather_provenance
from tests.benchmarks.committed import check_all, check_samples, printed, simulation_settings
from tests.support.scale import Scale, at

FEWER_TABLES = tuple(
    replace(table, cells=table.cells[::stride])
    for table, stride in zip(TABLES, (15, 6, 16, 6, 4), strict=True)
)


def test_every_table_stands_beside_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few cells of each; the earlier paper as a whole, whose results must be the committed."""
    monkeypatch.setattr(simulation, "TABLES", FEWER_TABLES)
    settings = simulation_settings()
    series = simulation.simulate(settings)
    check_samples("cake", [one for one in series if one.key.startswith("earlier_")])
    lines = printed(settings).splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("Table ")] == [
        f"Table {number}" for number in range(3, 8)
    ]
    assert any(line.startswith("Cake, earlier version") for line in lines)
    assert all(len(line) <= 120 for line in lines)


@at(Scale.QUICK)
def test_the_committed_results_are_what_the_code_gives() -> None:
    settings = simulation_settings()
    series = BENCHMARK.run(settings)
    check_all("cake", series, printed(settings))
    report = Report(
        benchmark="cake",
        quick=False,
        provenance=gather_provenance(""),
        series=series,
        parts=("simulate",),
    )
    report.check_figures(BENCHMARK.promised(settings.parts))
    tables = [one for one in series if one.is_figure and one.key.startswith("table")]
    assert all(0 < one.value < 0.1 for one in tables)
    least = [one for one in series if one.key.endswith("_over_best_baseline")]
    assert len(least) == len(TABLES)
    assert all(one.value >= 1 for one in least)
    lines = printed(settings).splitlines()
    # Slower than a baseline: one of the paper's cells in table 5, four in table 6, none of ours.
    assert "".join(line for line in lines if " paper " in line).count("!") == 5
    assert not any("!" in line for line in lines if " ours " in line)
