"""Who has the directory of an index locked, also where it gets another name."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvstored.store.index import index_lock
from kvstored.store.index.failure import IndexFailure
from kvstored.store.index.index_lock import IndexLock

BUSY = r"another process serves from the index in .*index; stop it, or name another place in store"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has an index gives it up here."""
    monkeypatch.setattr(index_lock, "LOCK_PATIENCE_S", 0.02)


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


def held_for(
    looks: int, leave: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    """Who has a lock leaves after so many looks at it; the sleeps between them."""
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == looks:
            leave()

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: sum(sleeps))
    monkeypatch.setattr(index_lock, "time", clock)
    monkeypatch.setattr(index_lock, "LOCK_PATIENCE_S", 2.0)
    return sleeps


def test_a_start_failed_at_once_while_the_process_before_it_went_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the kernel lets the lock go when the process is gone, not when it is killed."""
    sleeps = held_for(3, IndexLock(tmp_path / "index").release, monkeypatch)
    IndexLock(tmp_path / "index").release()
    assert len(sleeps) == 3


def test_what_was_set_aside_while_it_was_waited_for_is_not_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, aside = tmp_path / "index", tmp_path / "index.damaged-1"
    lock = IndexLock(directory)

    def leave() -> None:
        directory.rename(aside)
        lock.release()

    sleeps = held_for(3, leave, monkeypatch)
    with IndexLock(directory):
        assert directory.is_dir()
        IndexLock(aside).release()
    assert len(sleeps) == 3


def test_the_lock_of_a_process_that_lives_is_waited_for_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IndexLock(tmp_path / "index") as lock:
        sleeps = held_for(10**6, lock.release, monkeypatch)
        refuse(tmp_path / "index")
    assert sum(sleeps) == pytest.approx(2.0, abs=0.05)


def test_who_is_interrupted_while_it_waits_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with IndexLock(tmp_path / "index"):
        before = len(list(Path("/proc/self/fd").iterdir()))
        with monkeypatch.context() as patched:
            patched.setattr(index_lock, "time", SimpleNamespace(sleep=interrupt, monotonic=float))
            with pytest.raises(KeyboardInterrupt):
                IndexLock(tmp_path / "index")
        assert len(list(Path("/proc/self/fd").iterdir())) == before


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
