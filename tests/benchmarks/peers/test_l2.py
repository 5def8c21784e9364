"""LMCache over kvstored and over files, with a scripted LMCache: it is not in this environment."""

import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.peers import BENCHMARK, L2
from benchmarks.peers.l2 import FIGURES, FULL, OPERATIONS, QUICK, drop_from_memory, measure
from benchmarks.peers.l2_bench import L2Bench, ObjectSet, rate_of
from benchmarks.workload import MIB
from tests.benchmarks.peers import scripted_lmcache
from tests.support.scale import Scale, at

OBJECTS = ObjectSet(batch_objects=2, object_bytes=MIB, round_count=3)


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """That of an environment whose ``lmcache`` is scripted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "lmcache"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {scripted_lmcache.__file__} "$@"\n')
    command.chmod(0o755)
    return folder / "python"


def settings(tmp_path: Path, **changes: object) -> Settings:
    plain = Settings(
        quick=True, folder=tmp_path / "scratch", seed=1, console=Console(file=io.StringIO())
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@at(Scale.QUICK)
def test_all_are_measured_and_nothing_is_left(tmp_path: Path, interpreter: Path) -> None:
    found = measure(settings(tmp_path), replace(QUICK, objects=OBJECTS), interpreter)
    assert {one.key for one in found if one.is_figure} == set(FIGURES)
    # The scripted one takes 2 ms for 2 MiB, whatever is below it.
    rates = {one.key: one.samples for one in found if one.unit == "GB/s"}
    assert len(rates) == 3 * len(OPERATIONS)
    assert all(samples == pytest.approx((MIB / 1e6, MIB / 1e6)) for samples in rates.values())
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_without_an_environment_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"make \.venv-lmcache.* with --peer-python"):
        BENCHMARK.run(settings(tmp_path, parts=(L2,)))
    empty = settings(tmp_path, parts=(L2,), peer_python=tmp_path / "bin" / "python")
    with pytest.raises(BenchmarkError, match=r"has no `lmcache`.*make"):
        BENCHMARK.run(empty)
    assert list(tmp_path.iterdir()) == []


def test_lmcache_that_fails_says_its_last_words(tmp_path: Path, interpreter: Path) -> None:
    with pytest.raises(BenchmarkError, match="no such adapter"):
        L2Bench(interpreter, OBJECTS, tmp_path).store({"type": "broken"})


def test_an_object_that_is_lost_is_no_rate(tmp_path: Path, interpreter: Path) -> None:
    bench = L2Bench(interpreter, OBJECTS, tmp_path)
    adapter = {"type": "fs", "base_path": str(tmp_path)}
    with pytest.raises(BenchmarkError, match="load lost objects: 0 of 6 came through"):
        bench.load(adapter)
    bench.store(adapter)
    assert bench.load(adapter) == pytest.approx(2 * MIB / 0.002)


def test_a_rate_is_that_of_a_batch() -> None:
    operation = {"operation": "Load", "total_success": 6, "duration_avg_ms": 4.0}
    assert rate_of({"metrics": {"op_2": operation}}, OBJECTS) == pytest.approx(2 * MIB / 0.004)


def test_files_are_on_media_before_memory_forgets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not written stays in the page cache, whatever is said to it."""
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "file"
    path.write_bytes(b"kept")
    done: list[tuple[str, str]] = []

    def note(name: str) -> None:
        call = getattr(os, name)

        def noted(file: int, *arguments: int) -> None:
            done.append((name, str(Path(f"/proc/self/fd/{file}").readlink())))
            call(file, *arguments)

        monkeypatch.setattr(os, name, noted)

    note("fsync")
    note("posix_fadvise")
    drop_from_memory(tmp_path)
    assert done == [("fsync", str(path)), ("posix_fadvise", str(path))]
    assert path.read_bytes() == b"kept"


def test_the_full_size_is_half_a_gibibyte_after_a_batch_that_warms_up() -> None:
    assert FULL.objects.byte_count == (512 + 128) * MIB
    assert FULL.rounds.count_min == 5
