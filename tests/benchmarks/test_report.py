import json
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.report import Report, Series, Summary
from kvstored.evidence import gather_provenance

RATIO = Series(key="read_vs_fio", unit="ratio", samples=(0.9, 1.5, 1.0), is_figure=True)
PROVENANCE = gather_provenance("python -m benchmarks storage --quick")
RATE = Series(key="read_gb_per_s", unit="GB/s", samples=(2.0, 4.0))


def report(*series: Series) -> Report:
    return Report(
        benchmark="storage",
        quick=True,
        provenance=PROVENANCE,
        series=series,
    )


def test_the_value_is_the_median() -> None:
    assert RATIO.value == 1.0
    assert RATE.value == 3.0


def test_the_value_can_be_the_least() -> None:
    equal = Series(key="tokens_equal", unit="", samples=(1, 0, 1), summary=Summary.LEAST)
    assert equal.value == 0


def test_the_value_can_be_the_most() -> None:
    worst = Series(key="overshoot", unit="", samples=(0.5, 0.9, 0.1), summary=Summary.MOST)
    assert worst.value == 0.9


def test_a_series_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="read_vs_fio has no samples"):
        Series(key="read_vs_fio", unit="ratio", samples=())


def test_the_json_has_its_provenance_figures_and_all_samples() -> None:
    assert json.loads(report(RATE, RATIO).to_json()) == {
        "benchmark": "storage",
        "quick": True,
        **PROVENANCE.to_document(),
        "figures": {"read_vs_fio": 1.0},
        "samples": {"read_vs_fio": [0.9, 1.5, 1.0], "read_gb_per_s": [2.0, 4.0]},
    }


def test_a_partial_report_says_so() -> None:
    partial = replace(report(RATIO), parts=("cold_reads", "mixed"))
    assert json.loads(partial.to_json())["parts"] == ["cold_reads", "mixed"]
    assert "parts" not in json.loads(report(RATIO).to_json())
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(partial.table())
    assert "only: cold_reads, mixed" in capture.get()


def test_the_table_shows_value_median_least_and_most_figures_first() -> None:
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(report(replace(RATE, summary=Summary.MOST), RATIO).table())
    lines = capture.get().splitlines()
    rows = [line.split() for line in lines if "GB/s" in line or "ratio" in line]
    assert rows == [
        ["read_vs_fio", "ratio", "1.000", "1.000", "0.900", "1.500", "3"],
        ["read_gb_per_s", "GB/s", "4.000", "3.000", "2.000", "4.000", "2"],
    ]


def test_figures_other_than_promised_are_refused() -> None:
    report(RATE, RATIO).check_figures(["read_vs_fio"])
    with pytest.raises(ValueError, match="promises the figures"):
        report(RATE).check_figures(["read_vs_fio"])
