"""Every part at a tiny size: it measures what it promises, and leaves nothing behind."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Rounds
from benchmarks.storage.run import BENCHMARK, PARTS, measure
from benchmarks.storage.scale import Scale
from benchmarks.workload import KIB, MIB

MAY_BE_NOTHING = ("window", "overshoot", "disorder")
ROUNDS = Rounds(count=1, count_min=1, time_limit_s=0.0)
TINY = Scale(
    rounds=ROUNDS,
    slow_rounds=ROUNDS,
    sweep_rounds=ROUNDS,
    turn_bytes=16 * MIB,
    layer_count=4,
    get_chunks=4,
    get_layer_count=4,
    scaling_bytes=16 * MIB,
    overtaken_bytes=64 * MIB,
    client_count=2,
    client_sequences=2,
    sequence_bytes=32 * MIB,
    mixed_sequences=3,
    curve_bytes=16 * MIB,
    curve_slices=(16 * KIB, 4 * MIB),
    large_slab_bytes=64 * MIB,
    put_alone_s=0.2,
    fio_request_bytes=(MIB,),
    fio_depths=(4,),
    fio_jobs=(1,),
)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize("part", PARTS)
def test_a_part_measures_its_figures_and_leaves_nothing(tmp_path: Path, part: str) -> None:
    settings = Settings(
        quick=True,
        folder=tmp_path / "scratch",
        seed=1,
        console=Console(file=io.StringIO()),
        parts=(part,),
    )
    series = measure(settings, TINY)
    keys = [one.key for one in series]
    assert len(set(keys)) == len(keys)
    assert tuple(one.key for one in series if one.is_figure) == BENCHMARK.promised([part])
    # What is read in vain or out of order may be nothing.
    assert all(one.value > 0 for one in series if one.key.split("_")[-1] not in MAY_BE_NOTHING)
    assert list(tmp_path.iterdir()) == []
