"""A slow store against computing everything: what counts of what was found."""

import io

import pytest
from rich.console import Console

from benchmarks.report import Series
from benchmarks.restore.measured.slow_store import (
    AGAIN,
    COMPUTING,
    FIGURES,
    FIGURES_SPLIT,
    MODES,
    series_of,
    show_found,
)


def rounds(**seconds: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    """What three rounds at one rate found; modes that are not named took as long as computing."""
    computing = (2.0, 4.0, 2.0)
    found: dict[str, tuple[float, ...]] = {COMPUTING: computing, AGAIN: (2.0, 4.0, 3.0)}
    for mode in MODES:
        found[mode] = seconds.get(mode, computing)
        found[f"{mode}_restored"] = (0.5, 0.5, 0.0)
        found[f"{mode}_waited"] = (0.1, 0.4, 0.2)
    return found


FOUND = {"1": rounds(kv=(1.0, 2.0, 1.0)), "silent": rounds(hidden=(2.2, 4.2, 20.0))}


def value_of(series: tuple[Series, ...], key: str) -> float:
    return next(one for one in series if one.key == key).value


def test_what_counts_is_the_worst_median_of_all_modes_and_rates() -> None:
    series = series_of(FOUND, name="slow_store")
    (figure,) = [one for one in series if one.is_figure]
    assert figure.key in FIGURES
    assert figure.value == pytest.approx(1.1)
    assert value_of(series, "slow_store_1_kv_vs_computing") == 0.5
    (again,) = [one for one in series if one.key == "slow_store_1_computing_again_vs_computing"]
    assert again.samples == (1.0, 1.0, 1.5)
    assert value_of(series, "slow_store_silent_kv_vs_computing") == 1.0
    assert value_of(series, "slow_store_silent_kv_waited") == pytest.approx(0.1)
    assert value_of(series, "slow_store_silent_kv_restored") == 0.5


def test_both_parts_have_their_own_figure() -> None:
    (figure,) = [one for one in series_of(FOUND, name="slow_store_split") if one.is_figure]
    assert figure.key in FIGURES_SPLIT


def test_a_row_for_each_rate() -> None:
    output = io.StringIO()
    show_found(Console(file=output, width=120), FOUND)
    assert "silent" in output.getvalue()
    assert "1.100 (50%)" in output.getvalue()
