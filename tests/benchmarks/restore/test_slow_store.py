"""A slow store against computing everything: what counts, and a run at a tiny size."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Rounds
from benchmarks.report import Series
from benchmarks.restore.measured import slow_store
from benchmarks.restore.measured.slow_store import (
    COMPUTING,
    FIGURES,
    FIGURES_SPLIT,
    MODES,
    SHARES,
    SlowScale,
    measure,
    series_of,
    show_found,
)
from engine_adapters.restore import LayerCosts, LayerSchedule, Mode, Source
from engine_adapters.runner.model.random_model import RandomModelShape
from tests.support.scale import Scale, at

TINY = SlowScale(
    shape=RandomModelShape(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=64,
        layer_count=2,
        head_count=2,
        kv_head_count=2,
        position_count=2048,
    ),
    rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
)


def rounds(**seconds: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    """What three rounds at one rate found; modes that are not named took as long as computing."""
    computing = (2.0, 4.0, 2.0)
    found: dict[str, tuple[float, ...]] = {COMPUTING: computing}
    for mode in MODES:
        found[mode] = seconds.get(mode, computing)
        found[f"{mode}_restored"] = (0.5, 0.5, 0.0)
        found[f"{mode}_waited"] = (0.1, 0.4, 0.2)
    return found


FOUND = {"1": rounds(kv=(1.0, 2.0, 1.0)), "silent": rounds(hidden=(2.2, 4.2, 20.0))}


def stored(mode: Mode, _costs: LayerCosts, layers: int) -> LayerSchedule:
    return LayerSchedule.of((Source.KV if mode is Mode.KV else Source.HIDDEN, layers))


def value_of(series: tuple[Series, ...], key: str) -> float:
    return next(one for one in series if one.key == key).value


def test_what_counts_is_the_worst_median_of_all_modes_and_rates() -> None:
    series = series_of(FOUND, name="slow_store")
    (figure,) = [one for one in series if one.is_figure]
    assert figure.key in FIGURES
    assert figure.value == pytest.approx(1.1)
    assert value_of(series, "slow_store_1_kv_vs_computing") == 0.5
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


@at(Scale.QUICK)
def test_every_mode_is_measured_at_every_rate_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The plan must not hang on how busy the machine is while a cost is timed.
    monkeypatch.setattr(slow_store, "_stored", stored)
    settings = Settings(
        quick=True,
        folder=tmp_path / "scratch",
        seed=1,
        console=Console(file=io.StringIO(), width=120),
    )
    found = {one.key: one.value for one in measure(settings, TINY)}
    assert {f"slow_store_{share}_{mode}" for share in SHARES for mode in MODES} <= found.keys()
    assert found[f"slow_store_silent_{Mode.KV}_restored"] == 0
    assert all(value >= 0 for value in found.values())
    assert list(tmp_path.iterdir()) == []
