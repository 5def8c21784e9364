"""Who serves from an index has it alone, whatever devices others have."""

from pathlib import Path

import pytest

from kvstored.store.index import index_lock
from kvstored.store.index import service as index_service
from kvstored.store.index.index import DATA_FILE, IndexFailure
from kvstored.store.index.index_lock import IndexLock
from kvstored.store.index.service import close_cleanly
from kvstored.store.start import index_open
from tests.kvstored.store.index_stores import MAP_BYTES, WrittenStore
from tests.kvstored.store.start.test_index_open import opened


@pytest.fixture
def store() -> WrittenStore:
    written = WrittenStore()
    written.write(1)
    return written


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has an index gives it up here."""
    monkeypatch.setattr(index_lock, "LOCK_PATIENCE_S", 0.02)


def refuse_another(path: Path) -> None:
    """Who has other devices and the same place for the index changes nothing there."""
    left = sorted(path.parent.iterdir())
    with pytest.raises(IndexFailure, match=r"another process serves from the index in .*; stop it"):
        opened(path, WrittenStore())
    assert sorted(path.parent.iterdir()) == left


def test_a_second_daemon_with_other_devices_renamed_the_index_that_was_served(
    tmp_path: Path, store: WrittenStore
) -> None:
    """Bug: only devices were locked; what it could not open it took for damaged."""
    path = tmp_path / "index"
    index, recovered = opened(path, store)
    refuse_another(path)
    close_cleanly(index, recovered.table, recovered.next_stamp)
    index, _ = opened(path, store)
    refuse_another(path)
    index.close()


def test_the_index_in_the_place_of_one_that_is_set_aside_is_locked(
    tmp_path: Path, store: WrittenStore
) -> None:
    """The lock goes with the directory that gets another name."""
    path = tmp_path / "index"
    index, _ = opened(path, store)
    index.close()
    (path / DATA_FILE).write_bytes(b"cut")
    index, _ = opened(path, store)
    assert (tmp_path / "index.damaged-1").is_dir()
    refuse_another(path)
    index.close()
    opened(path, store)[0].close()


def test_a_start_that_fails_leaves_no_lock(
    tmp_path: Path, store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(index_open, "begin_epoch", fail)
        with pytest.raises(ZeroDivisionError):
            index_open.start(
                tmp_path / "index", MAP_BYTES, store.device_set, lambda done, total: None
            )
    opened(tmp_path / "index", store)[0].close()


def test_an_index_is_locked_until_its_mark_lies_beside_it(
    tmp_path: Path, store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index"
    index, recovered = opened(path, store)

    def leave_seal(directory: Path) -> None:
        with pytest.raises(IndexFailure, match="another process"):
            IndexLock(directory)
        raise OSError("planned")

    monkeypatch.setattr(index_service, "_leave_seal", leave_seal)
    close_cleanly(index, recovered.table, recovered.next_stamp)
    IndexLock(path).release()


@pytest.mark.parametrize("failing", ["_mark", "_leave_snapshot"])
def test_a_stop_that_failed_kept_the_lock(
    tmp_path: Path, store: WrittenStore, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Bug: nobody could start in the same process any more."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    path = tmp_path / "index"
    index, recovered = opened(path, store)
    with monkeypatch.context() as patched:
        patched.setattr(index_service, failing, fail)
        with pytest.raises(ZeroDivisionError):
            close_cleanly(index, recovered.table, recovered.next_stamp)
    opened(path, store)[0].close()
