"""Frames of flushed tails go for others, and the tails are loaded again."""

import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kvstored.store.sequences.rules import SequenceConflictError
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.tiers.chunks.requests import AppendOutcome, PutOutcome, PutTicket
from kvstored.tiers.chunks.stager import Stager
from kvstored.tiers.sequences import owned_sequences
from kvstored.tiers.sequences.open_sequences import let_go_of_tails
from kvstored_contract.reasons import Reason
from tests.support.appends import BIG, ME, OTHER, append, open_bytes
from tests.support.rows import Rows
from tests.support.stores import NAMESPACE, StoreUnderTest
from tests.support.waiting import SOON_S, wait_until

ROWS = Rows(BIG)
TOKENS = {name: [(ord(name) + 3 * n) % 512 for n in range(12)] for name in "abcd"}
FULL = AppendOutcome(0, Reason.DRAM_FULL)


def add(opened: StoreUnderTest, name: str, part: range, **options: Any) -> AppendOutcome:
    (outcome,) = append(opened, {name: part}, tokens=TOKENS[name], rows=ROWS, **options)
    return outcome


def flush(opened: StoreUnderTest, name: str, length: int) -> int:
    tail_key = ROWS.tail_key(TOKENS[name][:length])
    return opened.store.sequences.flush(ME, name, tail_key, length).durable_tokens


def held(opened: StoreUnderTest, name: str) -> AbstractContextManager[object]:
    sequences = opened.store.open_sequences
    return sequences.held_one(sequences.resolve(NAMESPACE, ME.session_id, name))


@pytest.fixture
def two(opened_rows: StoreUnderTest) -> StoreUnderTest:
    """Half of four slabs are for open frames, which the tails of "a" and "b" fill."""
    for name in "abcd":
        opened_rows.store.sequences.create(ME, name, BIG)
    for name in "ab":
        assert add(opened_rows, name, range(1)) == AppendOutcome(1)
    return opened_rows


def test_conversations_that_waited_for_their_next_turns_filled_dram(two: StoreUnderTest) -> None:
    """Bug: nothing more could be appended or flushed, of anybody, until their sessions ended."""
    assert add(two, "c", range(1)) == FULL
    assert flush(two, "a", 1) == 1
    assert add(two, "c", range(1)) == AppendOutcome(1)
    assert flush(two, "b", 1) == 1
    assert add(two, "a", range(1, 3)) == AppendOutcome(3)
    assert flush(two, "a", 3) == 3
    assert add(two, "b", range(1, 4)) == AppendOutcome(4)


def test_an_append_that_found_no_room_kept_the_tail_that_it_had_loaded(
    two: StoreUnderTest,
) -> None:
    """Bug: nobody could have the frame any more, until the session ended."""
    for name in "ab":
        flush(two, name, 1)
    two.store.open_sequences.end_session(ME.session_id)
    assert add(two, "c", range(1)) == AppendOutcome(1)
    assert add(two, "a", range(1, 6)) == AppendOutcome(1, Reason.DRAM_FULL)
    assert add(two, "d", range(1)) == AppendOutcome(1)


def test_a_fork_of_a_flushed_tail_kept_its_frame(opened_rows: StoreUnderTest) -> None:
    """Bug: nobody else could have it, though all of it was stored."""
    sequences = opened_rows.store.sequences
    for name in "acd":
        sequences.create(ME, name, BIG)
    assert add(opened_rows, "a", range(1)) == AppendOutcome(1)
    flush(opened_rows, "a", 1)
    sequences.fork(ME, "a", "e", 0)
    for name in "cd":
        assert add(opened_rows, name, range(1)) == AppendOutcome(1)


def test_a_fork_for_nobody_has_what_is_flushed(opened_rows: StoreUnderTest) -> None:
    """A caller over TCP has no session whose end would give an open tail back."""
    sequences = opened_rows.store.sequences
    sequences.create(ME, "a", BIG)
    add(opened_rows, "a", range(2))
    flush(opened_rows, "a", 2)
    add(opened_rows, "a", range(2, 3))
    before = open_bytes(opened_rows)
    nobody = replace(ME, ends=False)
    assert sequences.fork(nobody, "a", "b", 0).length_tokens == 2
    assert open_bytes(opened_rows) == before
    assert sequences.fork(ME, "a", "c", 0).length_tokens == 3


def test_sequences_that_were_stopped_counted_for_ever(
    two: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: one whose user never came back took a place of its session to that's end."""
    monkeypatch.setattr(owned_sequences, "OPEN_SEQUENCES_PER_SESSION_MAX", 3)
    sequences = two.store.sequences
    two.store.layouts.register(BIG)
    assert add(two, "c", range(1)) == FULL
    assert sequences.get(ME, "c").is_stopped
    sequences.delete(ME, "a")
    assert add(two, "d", range(1)) == AppendOutcome(1)
    sequences.create(ME, "a", BIG)
    # It has a place, and finds no frame.
    assert add(two, "a", range(1)) == FULL
    assert not sequences.get(ME, "c").is_stopped


def test_a_tail_that_goes_on_after_its_flush_stays(two: StoreUnderTest) -> None:
    flush(two, "a", 1)
    assert add(two, "a", range(1, 2)) == AppendOutcome(2)
    assert add(two, "c", range(1)) == FULL
    assert two.store.sequences.get(ME, "a").length_tokens == 2


def test_a_tail_that_somebody_uses_stays_until_they_are_done(two: StoreUnderTest) -> None:
    flush(two, "a", 1)
    with held(two, "a"):
        assert add(two, "c", range(1)) == FULL
    assert add(two, "c", range(1)) == AppendOutcome(1)


def test_a_flushed_tail_that_is_deleted_is_forgotten(two: StoreUnderTest) -> None:
    for name in "ab":
        flush(two, name, 1)
        two.store.sequences.delete(ME, name)
    assert not let_go_of_tails(two.store.open_sequences, lambda _: True)
    assert open_bytes(two) == 0


def test_a_flushed_tail_that_became_a_chunk_is_forgotten(two: StoreUnderTest) -> None:
    flush(two, "a", 1)
    assert add(two, "a", range(1, 4)) == AppendOutcome(4)
    wait_until(lambda: two.store.sequences.get(ME, "a").durable_tokens == 4)
    two.store.open_sequences.end_session(ME.session_id)
    assert not let_go_of_tails(two.store.open_sequences, lambda _: True)
    assert open_bytes(two) == 0
    assert len(two.store.open_sequences.flushed) == 0


def test_another_session_takes_the_frame_and_its_end_gives_it_back(two: StoreUnderTest) -> None:
    flush(two, "a", 1)
    assert add(two, "c", range(1), caller=OTHER) == AppendOutcome(1)
    two.store.open_sequences.end_session(ME.session_id)
    two.store.open_sequences.end_session(OTHER.session_id)
    assert open_bytes(two) == 0
    assert add(two, "a", range(1, 3)) == AppendOutcome(3)


def test_a_flush_without_room_has_flushed_tails_go(
    two: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the words of a turn could not be made durable, however often that was tried."""
    flush(two, "a", 1)
    before, put = open_bytes(two), Stager.put

    def full(stager: Stager, *values: Any) -> PutTicket:
        if open_bytes(two) == before:
            return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DRAM_FULL)
        return put(stager, *values)

    monkeypatch.setattr(Stager, "put", full)
    assert flush(two, "b", 1) == 1
    assert open_bytes(two) == before // 2


def test_tails_are_let_go_of_beside_those_who_use_them(two: StoreUnderTest) -> None:
    """Three talk at once and there are two frames: each gets one in the end, again and again."""
    wrong: list[object] = []
    arena = threading.Lock()

    def has_said_more(name: str) -> bool:
        """A tail that was evicted from the devices meanwhile is a miss: it begins once more."""
        length = two.store.sequences.get(ME, name).length_tokens + 1
        with arena:
            added = add(two, name, range(length - 1, length))
        with suppress(SequenceStorageError, SequenceConflictError):
            return flush(two, name, added.length_tokens) == length
        return False

    def talk(name: str) -> None:
        try:
            for _ in range(9):
                wait_until(partial(has_said_more, name), within_s=SOON_S)
        except AssertionError as error:
            wrong.append((name, error))

    for name in "ab":
        flush(two, name, 1)
    threads = [threading.Thread(target=talk, args=(name,)) for name in "acd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
