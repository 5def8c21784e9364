"""The measured part at a tiny size: it measures what it promises, and leaves nothing behind."""

import io
from pathlib import Path

from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Rounds
from benchmarks.restore import BENCHMARK
from benchmarks.restore.measured.run import measure
from benchmarks.restore.measured.scale import Balance, MeasuredSetting, Scale
from engine_adapters.runner.random_model import RandomModelShape

TINY = Scale(
    shape=RandomModelShape(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=256,
        layer_count=8,
        head_count=4,
        kv_head_count=4,
        position_count=2048,
    ),
    settings=(MeasuredSetting(token_count=1024, bandwidth_share=1.0, threads=1),),
    rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
)


def test_a_setting_says_what_it_starves() -> None:
    found = [
        MeasuredSetting(token_count=1, bandwidth_share=share, threads=2).balance
        for share in (0.5, 1.0, 2.0)
    ]
    assert found == [Balance.COMPUTE_RICH, Balance.BALANCED, Balance.IO_RICH]


def test_all_figures_and_nothing_left(tmp_path: Path) -> None:
    settings = Settings(
        quick=True, folder=tmp_path / "scratch", seed=1, console=Console(file=io.StringIO())
    )
    series = measure(settings, TINY)
    found = {one.key: one.value for one in series}
    assert {one.key for one in series if one.is_figure} == set(BENCHMARK.figures)
    assert found["tokens_equal"] == 1
    assert 1.5 < found["storage_per_token_kv_over_hcache_min"] < 3
    assert all(one.value > 0 for one in series)
    assert list(tmp_path.iterdir()) == []
