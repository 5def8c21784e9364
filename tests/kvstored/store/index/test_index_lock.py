"""Who has the directory of an index locked, also where it gets another name."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from kvstored.store.index import index_lock
from kvstored.store.index.failure import IndexFailure
from kvstored.store.index.index_lock import IndexLock

BUSY = r"another process serves from the index in .*index; stop it, or name another place in store"


def refuse(directory: Path) -> None:
    with pytest.raises(IndexFailure, match=BUSY):
        IndexLock(directory)


def test_one_at_a_time_has_it(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "index"
    with IndexLock(directory):
        assert list(directory.iterdir()) == []
        refuse(directory)
    lock = IndexLock(directory)
    refuse(directory)
    lock.release()
    lock.release()
    IndexLock(directory).release()


def test_no_program_that_is_started_has_it(tmp_path: Path) -> None:
    with IndexLock(tmp_path / "index") as lock:
        assert lock._descriptor is not None
        assert not os.get_inheritable(lock._descriptor)


def test_it_stays_with_a_directory_in_place(tmp_path: Path) -> None:
    """Also of one that nobody could lock twice."""
    directory = tmp_path / "index"
    with IndexLock(directory) as lock:
        lock.renew()
        refuse(directory)


@pytest.mark.parametrize("is_link", [False, True])
def test_it_moves_to_the_directory_that_has_the_name(tmp_path: Path, is_link: bool) -> None:
    directory, aside = tmp_path / "index", tmp_path / "index.damaged-1"
    if is_link:
        (tmp_path / "disk").mkdir()
        directory.symlink_to(tmp_path / "disk")
    with IndexLock(directory) as lock:
        directory.rename(aside)
        with pytest.raises(IndexFailure, match="another process"):
            IndexLock(aside)
        lock.renew()
        refuse(directory)
        IndexLock(aside).release()
    IndexLock(directory).release()


def test_what_was_set_aside_before_it_was_locked_is_not_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder gives it another name, makes and locks a new one, and lets the old one go."""
    directory, real = tmp_path / "index", fcntl.flock

    def late(descriptor: int, kind: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        directory.rename(tmp_path / "index.damaged-1")
        real(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    with IndexLock(directory):
        refuse(directory)
        IndexLock(tmp_path / "index.damaged-1").release()


def test_a_place_that_another_has_taken_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    with IndexLock(directory) as lock:
        directory.rename(tmp_path / "index.damaged-1")
        with IndexLock(directory), pytest.raises(IndexFailure, match=BUSY):
            lock.renew()
        with pytest.raises(IndexFailure, match="another process"):
            IndexLock(tmp_path / "index.damaged-1")


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IndexFailure, match=r"cannot create the index in .*file"):
        IndexLock(tmp_path / "file")


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", fail)
        with pytest.raises(IndexFailure, match=r"cannot lock the index in .*No locks available"):
            IndexLock(tmp_path / "index")
    with IndexLock(tmp_path / "index") as lock:
        monkeypatch.setattr(index_lock, "_is_in_place", fail)
        with pytest.raises(IndexFailure, match="cannot lock the index in"):
            lock.renew()
