"""The measured part at a tiny size: it measures what it promises, and leaves nothing behind."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Rounds
from benchmarks.restore import BENCHMARK
from benchmarks.restore.measured.machine import (
    ARENA_BYTES,
    DEVICE_BASE_BYTES,
    SLAB_BYTES,
    SettingMachine,
    device_bytes,
)
from benchmarks.restore.measured.run import SCRATCH_BYTES, measure
from benchmarks.restore.measured.scale import FULL, Balance, MeasuredSetting, Scale
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.model.random_model import RandomModelShape
from engine_adapters.runner.states.state_format import CHUNK_TOKENS
from kvstored.format.geometry import HEADER_BYTES
from tests.support.scale import Scale as Size
from tests.support.scale import at

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
    settings=(
        MeasuredSetting(token_count=1024, bandwidth_share=1.0, threads=1, balance_threads=1),
    ),
    rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
)


def test_a_setting_says_what_it_starves() -> None:
    found = [
        MeasuredSetting(
            token_count=1, bandwidth_share=share, threads=2, balance_threads=balance
        ).balance
        for share, balance in ((0.5, 2), (1.0, 2), (2.0, 2), (1.0, 1), (1.0, 4))
    ]
    compute_rich, io_rich = Balance.COMPUTE_RICH, Balance.IO_RICH
    assert found == [compute_rich, Balance.BALANCED, io_rich, compute_rich, io_rich]


def test_settings_vary_lengths_bandwidths_and_compute_speeds() -> None:
    names = [setting.name for setting in FULL.settings]
    assert len(names) == len(set(names)) == 10
    assert names[3] == "8192_tokens_bandwidth_1_threads_1"
    assert names[-2:] == [
        "2048_tokens_bandwidth_1_threads_2",
        "2048_tokens_bandwidth_1_of_threads_1_threads_2",
    ]


def test_the_largest_setting_has_room_on_its_device() -> None:
    """Three layouts of keys and values, one chunk to a slab, and four of hidden states."""
    shape = FULL.shape
    hidden_bytes = CHUNK_TOKENS * shape.layer_count * shape.hidden_size * 4
    token_count = max(setting.token_count for setting in FULL.settings)
    chunks = token_count // CHUNK_TOKENS
    assert 2 * (hidden_bytes + HEADER_BYTES) < SLAB_BYTES
    slabs = chunks * 3 + chunks * 4 // 2
    assert slabs * SLAB_BYTES + DEVICE_BASE_BYTES <= device_bytes(token_count)
    assert device_bytes(token_count) < SCRATCH_BYTES < 10e9
    hidden_step_bytes = TOKEN_BUDGET * shape.layer_count * shape.hidden_size * 4
    assert (3 * 2 + 4) * hidden_step_bytes < ARENA_BYTES


@at(Size.QUICK)
def test_all_figures_and_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recomputing_s = SettingMachine.recomputing_s
    # The plan must not hang on how busy the machine is while a cost is timed.
    monkeypatch.setattr(SettingMachine, "recomputing_s", lambda self: 1000 * recomputing_s(self))
    output = io.StringIO()
    settings = Settings(
        quick=True, folder=tmp_path / "scratch", seed=1, console=Console(file=output, width=120)
    )
    series = measure(settings, TINY)
    found = {one.key: one.value for one in series}
    assert {one.key for one in series if one.is_figure} == set(BENCHMARK.figures)
    assert found["tokens_equal"] == 1
    assert found["1024_tokens_bandwidth_1_threads_1_hcache_hidden_layers"] == 8
    assert found["1024_tokens_bandwidth_1_threads_1_recompute_compute_layers"] == 8
    assert "over the bound" in output.getvalue()
    assert 1.5 < found["storage_per_token_kv_over_hcache_min"] < 3
    assert all(one.value > 0 for one in series if one.unit != "layers")
    assert list(tmp_path.iterdir()) == []
