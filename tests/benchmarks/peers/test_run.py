"""The benchmark at a tiny size with a scripted peer: LMCache itself is not in this environment."""

import io
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.interleave import Rounds
from benchmarks.peers import BENCHMARK
from benchmarks.peers.run import SLICE_BYTES, measure, peer_file_bytes
from benchmarks.peers.series import FIGURES
from benchmarks.storage.scale import FULL, QUICK
from benchmarks.workload import GIB, MIB
from tests.benchmarks.peers.test_peer_process import SCRIPTED
from tests.support.scale import Scale, at
from tests.support.sharing import HUGE_PAGES

TINY = replace(
    QUICK,
    rounds=Rounds(count=2, count_min=2, time_limit_s=0.0),
    call_bytes=16 * MIB,
    layer_count=4,
    large_slab_bytes=64 * MIB,
)


def settings(tmp_path: Path, peer_python: Path | None = None) -> Settings:
    return Settings(
        quick=True,
        folder=tmp_path / "scratch",
        seed=1,
        console=Console(file=io.StringIO()),
        peer_python=peer_python,
    )


@HUGE_PAGES
@at(Scale.QUICK)
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_all_sides_are_measured_and_nothing_is_left(tmp_path: Path) -> None:
    found = measure(settings(tmp_path, Path(sys.executable)), TINY, SCRIPTED)
    assert {one.key for one in found if one.is_figure} == set(FIGURES)
    assert all(len(one.samples) == 2 and min(one.samples) > 0 for one in found)
    assert list(tmp_path.iterdir()) == []


def test_without_a_peer_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"pip install.*lmcache==.* with --peer-python"):
        BENCHMARK.run(settings(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_full_size_is_a_gibibyte_of_32_mib_chunks_a_turn() -> None:
    workload = FULL.call_workload(SLICE_BYTES)
    assert (workload.chunk_bytes, workload.chunk_count) == (32 * MIB, 32)
    assert FULL.rounds.count_min == 7
    # Both sequences, a header block for each chunk, and the checkpoints.
    assert 2 * GIB < peer_file_bytes(workload) < 2 * GIB + 128 * MIB
    assert peer_file_bytes(workload) % MIB == 0
