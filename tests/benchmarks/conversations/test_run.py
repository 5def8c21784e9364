"""All parts at a tiny size: they measure what they promise, and leave nothing behind."""

import io
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.conversations import BENCHMARK
from benchmarks.conversations.run import PARTS, measure
from benchmarks.conversations.scale import Scale, Workload
from benchmarks.interleave import Rounds
from engine_adapters.runner.model.random_model import RandomModelShape
from tests.support import scale

SHORTEST = "overflow"
SLOW = scale.at(scale.Scale.QUICK)
ONCE = Rounds(count=1, count_min=1, time_limit_s=0.0)
TINY = Scale(
    shape=RandomModelShape(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=64,
        layer_count=4,
        head_count=2,
        kv_head_count=2,
        position_count=2048,
    ),
    workload=Workload(count=4, turns=2, first_tokens=200, turn_tokens=40, answer_tokens=4),
    histories=((500, 500),),
    buffers=(0, 2),
    window=256,
    overflow_turns=4,
    saved_prompts=(200,),
    turn_rounds=ONCE,
    rounds=ONCE,
    least_wait_s=60.0,
)


def parts() -> list[ParameterSet]:
    """All of them; in ``make test`` the shortest."""
    return [pytest.param(part, marks=() if part == SHORTEST else SLOW) for part in PARTS]


@pytest.mark.parametrize("part", parts())
def test_each_part_measures_its_figures_and_leaves_nothing(part: str, tmp_path: Path) -> None:
    text = io.StringIO()
    settings = Settings(
        quick=True,
        folder=tmp_path / "scratch",
        seed=1,
        console=Console(file=text, width=120),
        parts=(part,),
    )
    found = {series.key: series for series in measure(settings, TINY)}
    figures = {key for key, series in found.items() if series.is_figure}
    assert figures == set(PARTS[part])
    assert not (tmp_path / "scratch").exists()
    if part == "turns":
        assert found["tokens_equal"].value == 1.0
        assert found["turns_ours_restored_share"].value > 0
        assert found["turns_recompute_restored_share"].value == 0
        assert 0 < found["turns_lru_busy_share"].value < 1
        assert "LLaMA-13B" in text.getvalue()
    if part == "devices":
        assert found["slower_ours_restored_share"].value > 0
        assert found["slowest_lru_equal"].value == 1.0
        limits = [found[f"{name}_device_limit"].value for name in ("slower", "slowest")]
        assert limits[0] > limits[1] > 0
    if part == "histories":
        assert found["figure_18_500_500_layers"].value > 0
        assert "500/500" in text.getvalue()
    if part == "buffers":
        assert {"figure_19_spans", "figure_19_buffer_0", "figure_19_buffer_2"} <= found.keys()
        assert "buffer 2" in text.getvalue()


def test_parts_together_have_all_figures() -> None:
    assert set(BENCHMARK.figures) == {
        "ttft_vs_recompute_x",
        "ttft_vs_lru_x",
        "ttft_vs_lru_slower_x",
        "ttft_vs_lru_slowest_x",
        "prefill_tokens_per_s_x",
        "dram_hit_share",
        "preload_hidden_share",
        "save_overlap_gain_pct",
        "overflow_on_vs_off_x",
        "tokens_equal",
    }
