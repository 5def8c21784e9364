"""Which change of a queue comes next."""

from engine_adapters.hints.queue_changes import QueueChanges, QueueUpdate
from kvstored_client import HintReport, QueueEntry
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX, WAITING_PER_SESSION_MAX


def entry(name: str, place: int, chunk_count: int = 0) -> QueueEntry:
    return QueueEntry(name=name, place=place, keys=[bytes(32)] * chunk_count)


def told(changes: QueueChanges) -> QueueUpdate:
    """The next update, which the daemon takes."""
    update = changes.take()
    assert update is not None
    assert changes.end(update, HintReport(True, update.version))
    return update


def names(update: QueueUpdate) -> list[str]:
    return [each.name for each in update.entered]


def test_only_what_changed_is_told_in_order_of_places() -> None:
    changes = QueueChanges()
    for name, place in (("b", 2), ("a", 1), ("gone", 0)):
        changes.enter(entry(name, place))
    changes.leave("gone")
    first = told(changes)
    assert (names(first), list(first.left), first.previous_version) == (["a", "b"], [], 0)
    assert changes.take() is None
    changes.enter(entry("c", 3))
    changes.leave("a")
    changes.leave("unknown")
    second = told(changes)
    assert (names(second), list(second.left)) == (["c"], ["a"])
    assert second.previous_version == first.version < second.version
    assert changes.take() is None


def test_after_a_failure_the_next_change_is_the_whole_queue() -> None:
    changes = QueueChanges()
    changes.enter(entry("a", 1))
    told(changes)
    changes.enter(entry("b", 2))
    lost = changes.take()
    assert lost is not None
    assert not changes.end(lost, None)
    changes.leave("a")
    whole = told(changes)
    assert (names(whole), list(whole.left), whole.previous_version) == (["b"], [], 0)
    assert whole.version > lost.version


def test_a_queue_that_is_empty_is_told_where_the_daemon_may_know_another() -> None:
    changes = QueueChanges()
    changes.enter(entry("a", 1))
    lost = changes.take()
    assert lost is not None
    changes.leave("a")
    assert not changes.end(lost, None)
    assert names(told(changes)) == []
    assert changes.take() is None


def test_a_daemon_that_knows_a_later_version_gets_a_larger_one() -> None:
    changes = QueueChanges()
    changes.enter(entry("a", 1))
    update = changes.take()
    assert update is not None
    assert not changes.end(update, HintReport(False, 40))
    assert told(changes).version == 41


def test_no_more_wait_than_may_and_others_follow_when_some_have_left() -> None:
    changes = QueueChanges()
    for number in range(WAITING_PER_SESSION_MAX + 2):
        changes.enter(entry(f"{number}", number))
    assert len(told(changes).entered) == WAITING_PER_SESSION_MAX
    assert changes.take() is None
    changes.leave("0")
    assert names(told(changes)) == [f"{WAITING_PER_SESSION_MAX}"]


def test_chunks_that_no_call_may_name_together_go_in_several() -> None:
    changes = QueueChanges()
    for number in range(3):
        changes.enter(entry(f"{number}", number, CHUNKS_PER_CALL_MAX // 2))
    assert names(told(changes)) == ["0", "1"]
    assert names(told(changes)) == ["2"]


def test_those_who_come_and_go_take_no_memory() -> None:
    changes = QueueChanges()
    for number in range(1000):
        changes.enter(entry(f"{number}", number))
        changes.leave(f"{number}")
    assert len(changes._untold) < 100
