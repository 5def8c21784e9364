import shutil
from pathlib import Path

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.scratch import scratch_folder


def test_the_folder_is_removed_with_its_parent(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "var" / "benchmarks", 1) as folder:
        (folder / "file").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == [tmp_path / "var"]
    assert not (tmp_path / "var" / "benchmarks").exists()


def test_a_parent_that_holds_more_is_kept(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x")
    with scratch_folder(tmp_path, 1) as folder:
        assert folder.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_it_is_removed_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), scratch_folder(tmp_path / "scratch", 1):
        raise RuntimeError
    assert not (tmp_path / "scratch").exists()


def test_a_full_disk_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with (
        pytest.raises(BenchmarkError, match="--folder"),
        scratch_folder(tmp_path, 1_000_000_000),
    ):
        pass
