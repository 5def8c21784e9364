"""Damaged indexes are kept, but not without end; unfinished ones are not."""

import errno
import logging
from pathlib import Path

import pytest

from kvstored.store.index import aside as index_aside
from kvstored.store.index.aside import (
    ASIDE_MAX,
    UNFINISHED_FILE,
    begin_build,
    clear_away,
    end_build,
    set_aside,
)
from kvstored.store.index.damage_mark import DAMAGE_FILE, leave_mark
from kvstored.store.index.environment import DATA_FILE, LOCK_FILE
from kvstored.store.index.failure import IndexDamagedError, IndexFailure

ERROR = IndexDamagedError("the index is damaged")


def no_medium(_: Path) -> None:
    raise OSError(5, "no medium")


def test_damaged_indexes_filled_the_file_system(tmp_path: Path) -> None:
    """Every start behind a faulty medium left one more."""
    directory = tmp_path / "index"
    for _ in range(ASIDE_MAX):
        directory.mkdir()
        set_aside(directory)
    directory.mkdir()
    with pytest.raises(IndexFailure, match=r"as 8 before it .*/index\.damaged-\*") as raised:
        set_aside(directory)
    assert not isinstance(raised.value, IndexDamagedError)
    assert directory.exists()


def unfinished(directory: Path) -> None:
    """What a kill leaves that comes while LMDB makes its file."""
    begin_build(directory)
    (directory / DATA_FILE).write_bytes(b"cut")
    (directory / LOCK_FILE).touch()


def test_an_unfinished_index_is_removed_however_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug: eight kills in the middle of a rebuild, and the daemon did not start any more."""
    directory = tmp_path / "made" / "index"
    for _ in range(ASIDE_MAX + 1):
        unfinished(directory)
        with caplog.at_level(logging.WARNING):
            clear_away(directory, ERROR)
        assert "it was never finished and is removed" in caplog.text
        assert [path.name for path in directory.iterdir()] == [UNFINISHED_FILE]
        assert list(directory.parent.iterdir()) == [directory]


def test_what_else_lies_beside_an_unfinished_index_stays(tmp_path: Path) -> None:
    """It may be a mount point, a link, or have the devices in it."""
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    (tmp_path / "disk" / "device0").write_bytes(b"chunks")
    directory = tmp_path / "index"
    directory.symlink_to(tmp_path / "disk")
    unfinished(directory)
    clear_away(directory, ERROR)
    names = {path.name for path in directory.iterdir()}
    assert names == {"lost+found", "device0", UNFINISHED_FILE}
    begin_build(directory)


def test_an_unfinished_index_that_was_found_damaged_is_kept(tmp_path: Path) -> None:
    """A faulty medium damages one after the other: that must come to an end."""
    directory = tmp_path / "index"
    for number in range(ASIDE_MAX):
        unfinished(directory)
        leave_mark(directory, "a page is damaged")
        clear_away(directory, ERROR)
        assert (tmp_path / f"index.damaged-{number + 1}" / DATA_FILE).exists()
    unfinished(directory)
    leave_mark(directory, "a page is damaged")
    with pytest.raises(IndexFailure, match="as 8 before it"):
        clear_away(directory, ERROR)


def test_a_finished_index_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "index"
    begin_build(directory)
    end_build(directory)
    end_build(directory)
    assert list(directory.iterdir()) == []
    (directory / DATA_FILE).write_bytes(b"cut")
    clear_away(directory, ERROR)
    assert (tmp_path / "index.damaged-1" / DATA_FILE).read_bytes() == b"cut"
    assert "it is kept as" in caplog.text


def test_a_removal_that_is_cut_short_leaves_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "index"
    unfinished(directory)

    with monkeypatch.context() as patched:
        patched.setattr(index_aside, "sync_directory", no_medium)
        with pytest.raises(IndexFailure, match=r"cannot be removed: .* remove it and start again"):
            clear_away(directory, ERROR)
    assert [path.name for path in directory.iterdir()] == [UNFINISHED_FILE]
    clear_away(directory, ERROR)


def test_what_the_file_system_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IndexFailure, match="cannot create the index in"):
        begin_build(tmp_path / "file" / "index")
    begin_build(tmp_path / "index")

    monkeypatch.setattr(index_aside, "sync_directory", no_medium)
    with pytest.raises(IndexFailure, match="cannot finish the index in"):
        end_build(tmp_path / "index")


def refuse_its_rename(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """As the kernel does for a mount point."""
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if path == directory:
            raise OSError(errno.EBUSY, "Device or resource busy")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)


def test_a_damaged_index_on_a_mount_point_kept_the_daemon_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a mount point has no other name, and each start ended with a traceback."""
    directory = tmp_path / "index"
    refuse_its_rename(monkeypatch, directory)
    for number in range(ASIDE_MAX):
        begin_build(directory)
        end_build(directory)
        (directory / DATA_FILE).write_bytes(b"cut")
        leave_mark(directory, "a page is damaged")
        clear_away(directory, ERROR)
        kept = directory / f"damaged-{number + 1}"
        assert {path.name for path in kept.iterdir()} == {DATA_FILE, DAMAGE_FILE}
        assert not (directory / DATA_FILE).exists()
        assert not (directory / DAMAGE_FILE).exists()
    with pytest.raises(IndexFailure, match=r"as 8 before it .*/index/damaged-\*"):
        clear_away(directory, ERROR)


def test_a_folder_in_which_nothing_can_be_kept_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "index"
    begin_build(directory)

    with monkeypatch.context() as patched:
        patched.setattr(index_aside, "sync_directory", no_medium)
        with pytest.raises(
            IndexFailure, match=r"cannot be kept as .*/index\.damaged-1: .* no medium"
        ):
            set_aside(directory)
    begin_build(directory)
    refuse_its_rename(monkeypatch, directory)
    monkeypatch.setattr(index_aside, "sync_directory", no_medium)
    with pytest.raises(IndexFailure, match=r"cannot be kept as .*/index/damaged-1: .* no medium"):
        set_aside(directory)
