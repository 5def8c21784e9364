import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.index_scale import run as run_module
from benchmarks.index_scale.asked import Asked
from benchmarks.index_scale.run import BENCHMARK, FULL, PARTS, QUICK, RECORDS, Scale, measure
from benchmarks.scratch import SCRATCH_BYTES_MAX
from tests.support.scale import Scale as Size
from tests.support.scale import at

TINY = Scale(
    record_count=3000,
    rebuild_count=300,
    asked=Asked(match_count=3, leased_count=2, put_count=2),
    round_count=1,
)


def settings(folder: Path, *parts: str) -> Settings:
    console = Console(file=io.StringIO())
    return Settings(quick=True, folder=folder, seed=1, console=console, parts=parts)


@at(Size.QUICK)
def test_every_promised_figure_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    series = measure(settings(tmp_path / "scratch"), TINY)
    figures = {one.key: one for one in series if one.is_figure}
    assert sorted(figures) == sorted(BENCHMARK.figures)
    assert figures["records"].value == 3000
    assert all(one.value > 0 for one in series)
    by_key = {one.key: one.samples for one in series}
    assert len(by_key["rss_gib"]) == 2
    assert max(by_key["rss_gib"]) == max(by_key["rss_open_gib"] + by_key["rss_asked_gib"])
    assert list(tmp_path.iterdir()) == []


def test_a_part_alone_measures_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "QUICK", TINY)
    series = BENCHMARK.run(settings(tmp_path / "scratch", RECORDS))
    assert sorted(one.key for one in series if one.is_figure) == sorted(PARTS[RECORDS])


def test_both_scales_keep_what_the_benchmark_promises() -> None:
    assert FULL.record_count == 10_000_000
    assert 200_000 <= FULL.rebuild_count <= 500_000
    assert FULL.scratch_bytes < SCRATCH_BYTES_MAX
    for scale in (FULL, QUICK):
        assert scale.round_count >= 3
        assert 2 * scale.round_count * scale.asked.match_count >= 2000
