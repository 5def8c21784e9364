import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import storage
from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.interleave import Rounds
from benchmarks.scratch import SCRATCH_BYTES_MAX
from benchmarks.storage import Scale, measure, require_tier
from benchmarks.store_session import ReadTiming
from benchmarks.workload import KIB, Workload
from kvstored_client import ReadReport

TINY = Scale(
    workload=Workload(chunk_count=4, slice_bytes=64 * KIB, layer_count=16),
    rounds=Rounds(count=2, count_min=1, time_limit_s=60.0),
    fio_depths=(4,),
    fio_jobs=(1,),
)


def settings(folder: Path) -> Settings:
    return Settings(quick=True, folder=folder, seed=1, console=Console(file=io.StringIO()))


def timing(*, device_bytes: int, dram_bytes: int) -> ReadTiming:
    report = ReadReport(
        resident=(True,),
        resident_prefix=1,
        device_bytes=device_bytes,
        dram_bytes=dram_bytes,
        finished=True,
    )
    return ReadTiming(duration_s=1.0, cpu_s=0.1, report=report)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_every_promised_figure_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    series = measure(settings(tmp_path / "scratch"), TINY)
    figures = {one.key: one for one in series if one.is_figure}
    assert tuple(figures) == storage.BENCHMARK.figures
    assert all(len(one.samples) == 2 and one.value > 0 for one in figures.values())
    assert list(tmp_path.iterdir()) == []


def test_bytes_from_the_wrong_tier_are_no_figure() -> None:
    require_tier(timing(device_bytes=100, dram_bytes=0), 100, is_cold=True)
    require_tier(timing(device_bytes=0, dram_bytes=100), 100, is_cold=False)
    for wrong, is_cold in (
        (timing(device_bytes=100, dram_bytes=1), True),
        (timing(device_bytes=99, dram_bytes=0), True),
        (timing(device_bytes=1, dram_bytes=100), False),
    ):
        with pytest.raises(BenchmarkError, match="another figure"):
            require_tier(wrong, 100, is_cold=is_cold)


def test_both_scales_keep_what_the_benchmarks_promise() -> None:
    quick, full = storage.QUICK, storage.FULL
    assert quick.workload.payload_bytes == 256 * 1024 * KIB
    assert full.workload.payload_bytes == 1024 * 1024 * KIB
    assert full.rounds.count_min >= 7
    assert full.scratch_bytes < SCRATCH_BYTES_MAX
    # Three parts and the sweep, each a little over its limit, within five minutes.
    assert 3 * quick.rounds.time_limit_s < 240
