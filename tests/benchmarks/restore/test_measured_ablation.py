"""The measured ablation at a tiny size: it measures what it promises, and leaves nothing behind."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Rounds
from benchmarks.restore import BENCHMARK
from benchmarks.restore.measured.ablation import BALANCED, ROUNDED, measure, plan
from benchmarks.restore.measured.partitions import LAYER_WISE
from benchmarks.restore.measured.scale import ABLATION, ABLATION_QUICK, Scale
from engine_adapters.restore import LayerCosts, Source
from tests.benchmarks.restore.test_measured import TINY
from tests.support.scale import Scale as Size
from tests.support.scale import at

TINY_ABLATION = Scale(
    shape=TINY.shape,
    settings=ABLATION.settings,
    rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
)


def test_the_planned_partitions() -> None:
    """C_Token = 6 C_H; reading takes a quarter of projecting, then four times as long."""
    io_rich = plan(
        LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=24.0, project_s=4.0),
        layer_count=10,
        token_count=1000,
    )
    assert io_rich.other is Source.KV
    assert io_rich.text(LAYER_WISE) == "4 H + 6 KV layers"
    assert io_rich.text(BALANCED) == "400 H + 600 KV tokens"
    assert io_rich.text(ROUNDED) == "384 H + 616 KV tokens"
    # Each layer reads 0.4 + 1.2 s and projects as long.
    assert io_rich.predicted_s[BALANCED] == pytest.approx(1.6 * 11)
    compute_rich = plan(
        LayerCosts(io_hidden_s=4.0, io_kv_s=8.0, compute_s=6.0, project_s=1.0),
        layer_count=9,
        token_count=1024,
    )
    assert compute_rich.other is Source.COMPUTE
    assert compute_rich.text(BALANCED) == "683 H + 341 RE tokens"


def test_each_setting_of_a_scale_has_a_complement_of_its_own() -> None:
    for scale in (ABLATION, ABLATION_QUICK):
        shares = [setting.bandwidth_share for setting in scale.settings]
        assert min(shares) < 1 < max(shares)


@at(Size.QUICK)
def test_all_figures_and_nothing_left(tmp_path: Path) -> None:
    output = io.StringIO()
    settings = Settings(
        quick=True,
        folder=tmp_path / "scratch",
        seed=1,
        console=Console(file=output, width=120),
        parts=("ablation",),
    )
    series = measure(settings, TINY_ABLATION)
    found = {one.key: one.value for one in series}
    figures = {one.key for one in series if one.is_figure}
    assert figures == set(BENCHMARK.promised(["ablation"]))
    assert found["ablation_tokens_equal"] == 1
    for other in ("kv", "compute"):
        assert found[f"ablation_{other}_token_wise_rounded_hidden_tokens"] % 64 == 0
        ratio = found[f"ablation_{other}_token_wise"] / found[f"ablation_{other}_layer_wise"]
        assert found[f"ablation_{other}_token_wise_vs_layers"] == ratio
    assert "KV tokens" in output.getvalue()
    assert "RE tokens" in output.getvalue()
    assert list(tmp_path.iterdir()) == []
