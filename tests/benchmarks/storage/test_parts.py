"""Every part at a tiny size: it measures what it promises, and leaves nothing behind."""

import io
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Rounds
from benchmarks.kit.daemon_process import DaemonProcess
from benchmarks.storage import clients, fairness, mixed, overtaken
from benchmarks.storage.bench import Bench
from benchmarks.storage.run import BENCHMARK, PARTS, measure
from benchmarks.storage.scale import Scale
from benchmarks.workload import KIB, MIB
from tests.benchmarks.storage.patient_worker import PatientProcess
from tests.support import labs
from tests.support.sharing import HUGE_PAGES

MAY_BE_NOTHING = ("window", "overshoot", "disorder")
ROUNDS = Rounds(count=1, count_min=1, time_limit_s=0.0)
TINY = Scale(
    rounds=ROUNDS,
    slow_rounds=ROUNDS,
    sweep_rounds=ROUNDS,
    call_bytes=8 * MIB,
    layer_count=4,
    get_chunks=4,
    get_layer_count=4,
    scaling_bytes=8 * MIB,
    overtaken_bytes=32 * MIB,
    client_count=2,
    client_sequences=2,
    sequence_bytes=16 * MIB,
    small_calls_s=0.1,
    mixed_sequences=2,
    curve_bytes=16 * MIB,
    curve_slices=(16 * KIB, 4 * MIB),
    large_slab_bytes=64 * MIB,
    put_alone_s=1.5,
    fio_request_bytes=(MIB,),
    fio_depths=(4,),
    fio_jobs=(1,),
)


CLIENT_BYTES_PER_S = 50_000_000
"""Of a device that several client processes use: none is done before the others have begun."""
OVERTAKEN_BYTES_PER_S = 16_000_000
"""Likewise where a read is given up half-way: the second half takes a second."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process comes too late, however busy the machine is: nothing here is a fair figure."""
    daemon = Bench.daemon

    def slow_daemon(
        self: Bench, name: str, **options: Any
    ) -> AbstractContextManager[DaemonProcess]:
        if name in {"clients", "mixed"}:
            options["device_bytes_per_s_max"] = CLIENT_BYTES_PER_S
        return daemon(self, name, **options)

    monkeypatch.setattr(Bench, "daemon", slow_daemon)
    for module in (clients, mixed):
        monkeypatch.setattr(module, "WorkerProcess", PatientProcess)
    monkeypatch.setattr(mixed, "PUT_AHEAD_S", 2.0)
    # All kinds are measured in the same way, and the largest puts and reads take seconds.
    monkeypatch.setattr(fairness, "KINDS", ("match", "pin"))
    monkeypatch.setattr(fairness, "SETTLE_S", 0.02)
    monkeypatch.setattr(overtaken, "DEVICE_BYTES_PER_S", OVERTAKEN_BYTES_PER_S)


@HUGE_PAGES
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@labs.STORAGE_PARTS.first("part", dict.fromkeys(["dram_hits", *PARTS]), name=str)
def test_a_part_measures_its_figures_and_leaves_nothing(tmp_path: Path, part: str) -> None:
    if part.endswith("_split") and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core for each side takes two")
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
