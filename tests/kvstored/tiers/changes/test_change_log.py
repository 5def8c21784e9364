import tracemalloc

import pytest

from kvstored.tiers.changes.change_log import (
    ANSWER_NOTES_BYTES_MAX,
    CHANGES_MAX,
    CHANGES_PER_ANSWER_MAX,
    NOTES_BYTES_MAX,
    Change,
    ChangeKind,
    ChangeLog,
)
from kvstored_contract.limits import KEY_BYTES

NOTE_BYTES = 1 << 20


def change(number: int, note: bytes = b"") -> Change:
    return Change(ChangeKind.STORED, number.to_bytes(KEY_BYTES, "big"), note)


def log_of(count: int) -> ChangeLog:
    log = ChangeLog()
    for number in range(count):
        log.add(change(number))
    return log


def test_changes_behind_a_place_are_told_in_order() -> None:
    span = log_of(5).after(3)
    assert span.changes == (change(3), change(4))
    assert (span.last_sequence, span.is_lost, span.has_more) == (5, False, False)


def test_who_knows_everything_is_told_nothing() -> None:
    span = log_of(2).after(2)
    assert span.changes == ()
    assert (span.last_sequence, span.is_lost, span.has_more) == (2, False, False)


def test_newcomer_is_told_all_that_is_known() -> None:
    span = log_of(2).after(None)
    assert span.changes == (change(0), change(1))
    assert (span.last_sequence, span.is_lost) == (2, True)


@pytest.mark.parametrize("place", [3, 99])
def test_place_that_never_was_is_lost(place: int) -> None:
    span = log_of(2).after(place)
    assert span.is_lost
    assert len(span.changes) == 2


def test_who_comes_too_late_is_told_that_something_is_missing() -> None:
    log = log_of(CHANGES_MAX + 2)
    assert not log.after(2).is_lost
    span = log.after(1)
    assert span.is_lost
    assert span.changes[0] == change(2)


def test_answer_is_bounded_and_goes_on_where_it_ended() -> None:
    log = log_of(CHANGES_PER_ANSWER_MAX + 1)
    first = log.after(0)
    assert len(first.changes) == CHANGES_PER_ANSWER_MAX
    assert first.has_more
    second = log.after(first.last_sequence)
    assert second.changes == (change(CHANGES_PER_ANSWER_MAX),)
    assert not second.has_more


def test_notes_of_an_answer_are_bounded() -> None:
    log = ChangeLog()
    count = ANSWER_NOTES_BYTES_MAX // NOTE_BYTES
    for number in range(count + 1):
        log.add(change(number, bytes(NOTE_BYTES)))
    assert len(log.after(0).changes) == count
    assert len(log.after(count).changes) == 1


def test_notes_are_forgotten_with_the_oldest_changes() -> None:
    log = ChangeLog()
    count = NOTES_BYTES_MAX // NOTE_BYTES
    for number in range(count + 1):
        log.add(change(number, bytes(NOTE_BYTES)))
    assert log.notes_bytes == NOTES_BYTES_MAX
    assert log.after(0).is_lost
    assert not log.after(1).is_lost


def test_everybody_starts_over_behind_a_loss() -> None:
    log = log_of(2)
    log.lose()
    assert log.after(2).is_lost
    span = log.after(None)
    assert span.changes == ()
    assert log.notes_bytes == 0
    log.add(change(7))
    assert log.after(span.last_sequence).changes == (change(7),)
    assert not log.after(span.last_sequence).is_lost


def test_a_daemon_grew_by_what_it_remembered() -> None:
    """*Bug:* by 4 MiB for each namespace that was asked for its changes once."""
    log = log_of(1)
    tracemalloc.start()
    try:
        for number in range(CHANGES_MAX + 10):
            log.add(change(number))
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown_bytes < 4096
    assert log.after(None).changes[0] == change(10)


def test_a_key_of_another_length_is_refused() -> None:
    log = log_of(1)
    with pytest.raises(ValueError, match="different structures"):
        log.add(Change(ChangeKind.STORED, b"short"))
