"""The engines benchmark, at a tiny scale."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.engines import BENCHMARK, Scale, measure
from benchmarks.interleave import Rounds
from benchmarks.workload import MIB
from tests.support.scale import Scale as Size
from tests.support.scale import at
from tests.support.sharing import HUGE_PAGES

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@HUGE_PAGES
@at(Size.QUICK)
@needs_fio
def test_every_way_is_measured_beside_fio(tmp_path: Path) -> None:
    settings = Settings(quick=True, folder=tmp_path, seed=1, console=Console(file=io.StringIO()))
    rounds = Rounds(count=2, count_min=2, time_limit_s=60)
    found = measure(settings, Scale(byte_count=8 * MIB, rounds=rounds))
    keys = {series.key for series in found}
    assert set(BENCHMARK.figures) == {series.key for series in found if series.is_figure}
    for engine in ("io_uring", "threads"):
        for landing in ("direct", "copied"):
            for size in ("512kib", "2048kib"):
                assert f"{engine}_{landing}_4kib_{size}_gb_per_s" in keys
                assert f"{engine}_{landing}_4kib_{size}_cpu_s_per_gb" in keys
    assert "fio_huge_2048kib_cpu_s_per_gb" in keys
    assert all(len(series.samples) == 2 for series in found)
    assert not tmp_path.exists() or not list(tmp_path.iterdir())
