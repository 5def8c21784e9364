import pytest

from kvstored.tiers.hints import session_queue
from kvstored.tiers.hints.session_queue import SessionQueue


@pytest.fixture
def queue() -> SessionQueue:
    return SessionQueue()


def test_changes_follow_each_other(queue: SessionQueue) -> None:
    assert queue.takes(1, 0)
    queue.version = 5
    assert queue.takes(6, 5)
    assert queue.takes(9, 5)
    assert not queue.takes(5, 4)
    assert not queue.takes(7, 6)
    assert not queue.takes(7, 4)
    assert queue.takes(7, 0)
    assert not queue.takes(5, 0)


def test_names_wait_once(queue: SessionQueue) -> None:
    assert queue.enter({"a": 2, "b": 1}) == ["a", "b"]
    assert list(queue.names) == ["a", "b"]
    assert queue.leave(["a", "a", "c"]) == ["a"]
    assert list(queue.names) == ["b"]


def test_names_and_chunks_are_bounded(queue: SessionQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_queue, "WAITING_PER_SESSION_MAX", 3)
    monkeypatch.setattr(session_queue, "HINTED_CHUNKS_PER_SESSION_MAX", 10)
    assert queue.enter({"a": 8, "b": 3, "c": 2}) == ["a", "c"]
    assert queue.enter({"d": 0, "e": 0}) == ["d"]
    queue.leave(["a"])
    assert queue.enter({"f": 8}) == ["f"]
