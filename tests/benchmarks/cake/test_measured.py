"""The measured parts at a tiny size: they measure what they promise, and leave nothing behind."""

import io
from pathlib import Path

from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.cake import BENCHMARK
from benchmarks.cake.measured.run import PARTS, measure
from benchmarks.cake.measured.scale import Scale
from benchmarks.cake.platforms import TWO_A100
from benchmarks.interleave import Rounds
from engine_adapters.runner.model.random_model import RandomModelShape
from tests.support import labs
from tests.support.scale import Scale as Size
from tests.support.scale import at


def shape(kv_head_count: int) -> RandomModelShape:
    return RandomModelShape(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=256,
        layer_count=2,
        head_count=4,
        kv_head_count=kv_head_count,
        position_count=2048,
    )


TINY = Scale(
    mha=shape(4),
    gqa=shape(1),
    tokens=1024,
    chunk_tokens=64,
    choices={
        3: lambda cell: (cell.gpus, cell.gbit_per_s, cell.share) == (TWO_A100, 32, 1),
        7: lambda cell: cell.gbit_per_s == 32 and cell.bits in (16, 3),
    },
    rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
    more_rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
    has_cachegen=True,
    long_tokens=1024,
    long_rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
    disturbed_rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
    check_passes=1,
    check_step_tokens=256,
)


def settings(folder: Path) -> Settings:
    return Settings(
        quick=True,
        folder=folder / "scratch",
        seed=1,
        console=Console(file=io.StringIO(), width=120),
    )


@labs.CAKE_PARTS.first("part", ["check"], name=str)
def test_a_part_alone_measures_its_figures(part: str, tmp_path: Path) -> None:
    series = measure(settings(tmp_path), TINY, (part,))
    assert {one.key for one in series if one.is_figure} == set(PARTS[part])
    assert list(tmp_path.iterdir()) == []


@at(Size.QUICK)
def test_all_figures_and_nothing_left(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    series = measure(chosen, TINY, tuple(PARTS))
    found = {one.key: one.value for one in series}
    assert {one.key for one in series if one.is_figure} == set(BENCHMARK.figures)
    assert found["tokens_equal"] == 1
    above_0 = (
        "cake_vs_oracle_max",
        "cake_vs_oracle_nominal",
        "cake_vs_oracle_beside",
        "speedup_over_io_mean",
        "adaptive_shorts_over_long",
    )
    assert all(found[key] > 0 for key in above_0)
    decoded = {key: value for key, value in found.items() if key.endswith("_cake_decode")}
    assert {"cachegen" in key for key in decoded} == {True, False}
    # How much was loaded, and so decoded, is the planner's choice by what it measured.
    assert all(value == 0 for key, value in decoded.items() if "16_bits" in key)
    assert list(tmp_path.iterdir()) == []
    file = chosen.console.file
    assert isinstance(file, io.StringIO)
    lines = file.getvalue().splitlines()
    tables = [line for line in lines if line.startswith("Table ")]
    assert [line.split(" measured:")[0] for line in tables] == ["Table 3", "Table 7"]
