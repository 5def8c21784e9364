"""The benchmark at a tiny size: it measures what it promises, and leaves nothing behind."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.decode import BENCHMARK
from benchmarks.decode.run import chosen, measure
from benchmarks.decode.scale import FULL, QUICK, Scale
from engine_adapters.runner.model.random_model import RandomModelShape
from tests.support import labs

TINY = Scale(
    shape=RandomModelShape(
        vocab_size=512,
        hidden_size=1024,
        intermediate_size=64,
        layer_count=2,
        head_count=4,
        kv_head_count=4,
        position_count=512,
    ),
    batch_sizes=(1, 3),
    history_tokens=8,
    lead_steps=16,
    stint_steps=5,
    cycles=15,
    cycles_min=11,
)


def test_short_steps_are_measured_more_often() -> None:
    assert [FULL.cycles_of(size) for size in FULL.batch_sizes] == [128, 64, 32, 24, 24, 24]
    assert FULL.variant_steps(4) == (FULL.lead_cycles + 32) * FULL.stint_steps


def test_a_part_is_one_batch_size() -> None:
    assert chosen(FULL, ()) == FULL
    assert chosen(FULL, ("batch8",)).batch_sizes == (8,)
    with pytest.raises(BenchmarkError, match="quick runs have batches of"):
        chosen(QUICK, ("batch2",))


@labs.DECODED_BATCHES.sizes("count")
def test_all_figures_and_nothing_left(tmp_path: Path, count: int) -> None:
    scale = replace(TINY, batch_sizes=TINY.batch_sizes[:count])
    settings = Settings(
        quick=True, folder=tmp_path / "scratch", seed=1, console=Console(file=io.StringIO())
    )
    series = measure(settings, scale)
    found = {one.key: one.value for one in series}
    assert {one.key for one in series if one.is_figure} == set(BENCHMARK.figures)
    for size in scale.batch_sizes:
        assert found[f"batch{size}_two_stage_rows_per_s"] > 0
        # Whole chunks only: many rows to a request.
        requests_per_s = found[f"batch{size}_two_stage_device_requests_per_s"]
        assert 0 < requests_per_s < found[f"batch{size}_two_stage_rows_per_s"] / 4
    assert list(tmp_path.iterdir()) == []
