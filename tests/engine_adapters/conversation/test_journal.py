"""What a store that loses words, goes or is late does to a conversation."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest

from engine_adapters.conversation.conversations import Conversations
from engine_adapters.conversation.errors import ConversationError, LostWordsError
from engine_adapters.conversation.journal import (
    CHUNK_WORDS,
    NAME_SUFFIX,
    Journal,
    words_layout,
)
from engine_adapters.conversation.words import turn_words
from kvstored_client import Lease, Match, SequenceInfo, SliceState, StateLayout
from kvstored_client.testing import MemoryClient, MemoryStore
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import store_pb2
from tests.engine_adapters.conversation.conftest import MODEL

NAME = "a talk"


def numbered(count: int, first: int = 0) -> list[int]:
    return [n % 500 for n in range(first, first + count)]


def test_lost_token_ids_are_told(talks: Conversations, store: MemoryStore) -> None:
    """Nothing can compute them again, and an empty history would give a wrong answer."""
    talks.end_turn(talks.open(NAME), [1, 2])
    store.chunks.clear()
    with pytest.raises(ConversationError, match="has lost token ids"):
        talks.open(NAME)


@pytest.mark.parametrize("count", [2, CHUNK_WORDS + 7])
def test_token_ids_that_were_evicted_during_a_turn_were_forgotten(
    talks: Conversations, store: MemoryStore, count: int
) -> None:
    """Bug: adding a turn made the conversation shorter or empty, and opening it did not tell.

    The store ends a sequence whose tail is gone before it. Who adds to a conversation has all of
    its token ids, so they are put there again.
    """
    talk = talks.end_turn(talks.open(NAME), numbered(count))
    store.chunks.clear()
    talk = talks.end_turn(talk, [3])
    assert talks.open(NAME) == talk
    assert talk.token_ids == (*numbered(count), 3)


def test_token_ids_that_the_store_does_not_take_again_stay_lost(
    talks: Conversations, store: MemoryStore
) -> None:
    """Also after the turn that could not be added; nothing is forgotten without a word."""
    talk = talks.end_turn(talks.open(NAME), [1, 2])
    store.chunks.clear()
    store.faults.put_rejection = lambda *_: Reason.STORE_FULL
    with pytest.raises(ConversationError, match="could not take them once more"):
        talks.end_turn(talk, [3])
    with pytest.raises(ConversationError, match="has lost token ids"):
        talks.open(NAME)


@pytest.mark.parametrize("hears_of_it", [True, False])
def test_a_layout_that_the_daemon_does_not_know_made_a_conversation_empty(
    client: MemoryClient, talks: Conversations, monkeypatch: pytest.MonkeyPatch, hears_of_it: bool
) -> None:
    """Bug: the daemon says that such a sequence has no tokens, and nobody asked about its keys."""
    talk = talks.end_turn(talks.open(NAME), [1, 2])
    known = [False]
    get, match = client.sequences.get, client.match

    def info(name: str) -> SequenceInfo | None:
        found = get(name)
        if found is None or known[0]:
            return found
        return replace(found, staged_tokens=0, durable_tokens=0)

    def matched(layout: StateLayout, keys: Sequence[bytes]) -> Match[Lease]:
        known[0] = hears_of_it
        return match(layout, keys)

    monkeypatch.setattr(client.sequences, "get", info)
    monkeypatch.setattr(client, "match", matched)
    if hears_of_it:
        assert talks.open(NAME) == talk
    else:
        with pytest.raises(ConversationError, match="does not say how long conversation 'a talk'"):
            talks.open(NAME)


def test_a_store_that_is_gone_is_told(talks: Conversations, store: MemoryStore) -> None:
    talk = talks.end_turn(talks.open(NAME), [1, 2])
    store.kill()
    with pytest.raises(ConversationError):
        talks.open(NAME)
    with pytest.raises(ConversationError):
        talks.end_turn(talk, [3])


@pytest.mark.parametrize("returns", [True, False])
def test_a_store_that_went_while_it_was_read_had_lost_token_ids(
    talks: Conversations, store: MemoryStore, returns: bool
) -> None:
    """*Bug:* users heard of a loss and began again, though all was there after a restart."""
    talk = talks.end_turn(talks.open(NAME), [1, 2])

    def go(request: object) -> None:
        if isinstance(request, store_pb2.ReadRequest):
            store.kill()
            if returns:
                store.start()

    store.faults.before = go
    with pytest.raises(ConversationError, match="open it again") as caught:
        talks.open(NAME)
    assert not isinstance(caught.value, LostWordsError)
    store.faults.before = lambda _: None
    if not returns:
        store.start()
    assert talks.open(NAME) == talk


def test_token_ids_that_came_late_were_lost(talks: Conversations, store: MemoryStore) -> None:
    """*Bug:* a device that takes longer than a read waits was a loss, too."""
    talk = talks.end_turn(talks.open(NAME), [1, 2])
    store.faults.lost_slices.update((key, 0) for key in store.chunks)
    store.faults.lost_as = SliceState.LATE
    with pytest.raises(ConversationError, match="open it again") as caught:
        talks.open(NAME)
    assert not isinstance(caught.value, LostWordsError)
    store.faults.lost_slices.clear()
    assert talks.open(NAME) == talk


def test_without_room_in_the_arena_nothing_is_told(
    talks: Conversations, store: MemoryStore
) -> None:
    talk = talks.end_turn(talks.open(NAME), [1, 2])
    with MemoryClient(store, room_bytes=0) as full:
        without_room = Conversations(full, MODEL)
        with pytest.raises(ConversationError, match="no room in the arena to read"):
            without_room.open(NAME)
        with pytest.raises(ConversationError, match="no room in the arena to save"):
            without_room.end_turn(talk, [3])
    assert talks.open(NAME) == talk


def test_words_that_somebody_is_adding_are_waited_for(client: MemoryClient) -> None:
    """Of a writer that lives they never become durable, so the wait has an end."""
    ticks = itertools.count()
    journal = Journal(client, MODEL, clock=lambda: float(next(ticks)))
    journal.open(NAME)
    journal._append(NAME, 0, [7], [])
    with pytest.raises(ConversationError, match="somebody else is adding"):
        journal.open(NAME)


@pytest.mark.parametrize("length", [3, CHUNK_WORDS - 1, CHUNK_WORDS + 5])
def test_a_turn_that_could_not_be_flushed_kept_its_conversation_shut(
    talks: Conversations, client: MemoryClient, length: int
) -> None:
    """Bug: its words stayed staged in the session of their own writer, for as long as that lived.

    So every later look at the conversation said that somebody else was adding to it.
    """
    talk = talks.end_turn(talks.open(NAME), [7, 8])
    with (
        patch.object(client.sequences, "flush", return_value=None),
        pytest.raises(ConversationError, match="could not be made durable"),
    ):
        talks.end_turn(talk, numbered(length))
    found = talks.open(NAME)
    assert found.token_ids == (7, 8, *numbered(length))
    assert talks.end_turn(found, [9]) == talks.open(NAME)
    assert not talks._journal._unsettled


def test_words_of_another_process_were_flushed_under_the_key_of_ours(
    client: MemoryClient, store: MemoryStore
) -> None:
    """Bug: they were told apart by their number alone. No key may name words of another one."""
    ticks = itertools.count()
    ours = Journal(client, MODEL, clock=lambda: float(next(ticks)))
    ours.open(NAME)
    ours.append(NAME, (), [7, 8])
    with (
        patch.object(client.sequences, "flush", return_value=None),
        pytest.raises(ConversationError, match="whether it has happened"),
    ):
        ours.append(NAME, (7, 8), [1, 2, 3])
    # As if the daemon had let go of them with a session that was lost.
    client.sequences.truncate_tokens(NAME + NAME_SUFFIX, 3)
    client.sequences.flush(NAME + NAME_SUFFIX, ours._keys([7, 8])[-1], expected_tokens=2)
    with MemoryClient(store) as other:
        theirs = Journal(other, MODEL)
        theirs._append(NAME, 2, [4, 5, 6], [])
        stored = set(store.chunks)
        with pytest.raises(ConversationError, match="somebody else is adding"):
            ours.open(NAME)
        assert set(store.chunks) == stored
        assert theirs._flush(NAME, theirs._keys([7, 8, 4, 5, 6]), 5) is not None
    assert ours.open(NAME) == (7, 8, 4, 5, 6)


@pytest.mark.parametrize("count", [1, 7])
def test_a_refused_turn_was_flushed_in_the_place_of_the_one_before(
    talks: Conversations, client: MemoryClient, count: int
) -> None:
    """Bug: a turn from the same state was refused, and its words named those of the first one."""
    talk = talks.end_turn(talks.open(NAME), [7, 8])
    with (
        patch.object(client.sequences, "flush", return_value=None),
        pytest.raises(ConversationError, match="whether it has happened"),
    ):
        talks.end_turn(talk, [1, 2, 3])
    with pytest.raises(ConversationError, match="open it again"):
        talks.end_turn(talk, numbered(count, 100))
    assert talks.open(NAME).token_ids == (7, 8, 1, 2, 3)


def test_a_first_turn_without_words_left_two_names(
    talks: Conversations, client: MemoryClient, store: MemoryStore
) -> None:
    """Bug: names are counted, and nobody lists one without a turn."""
    client.sequences.create(NAME, words_layout(MODEL))
    store.faults.append_rejection = lambda *_: Reason.DRAM_FULL
    with pytest.raises(ConversationError, match="could not be saved"):
        talks.end_turn(talks.open(NAME), [1, 2])
    assert client.sequences.list() == []


def test_a_first_turn_that_is_not_durable_in_time_may_still_happen(
    talks: Conversations, client: MemoryClient
) -> None:
    """So it forgets nothing."""
    client.sequences.create(NAME, words_layout(MODEL))
    with (
        patch.object(client.sequences, "flush", return_value=None),
        pytest.raises(ConversationError, match="whether it has happened"),
    ):
        talks.end_turn(talks.open(NAME), [1, 2])
    assert talks.open(NAME).token_ids == (1, 2)
    assert set(client.sequences.list()) == {NAME, NAME + NAME_SUFFIX}


def test_a_first_turn_that_came_second_forgets_nothing_of_the_first(
    talks: Conversations, client: MemoryClient, store: MemoryStore
) -> None:
    """Fails where what a failed first turn leaves is deleted without a look.

    Also before the first one has added its words, which then had no place to go to.
    """
    client.sequences.create(NAME, words_layout(MODEL))
    late = talks.open(NAME)
    with MemoryClient(store) as other:
        winner = Journal(other, MODEL)
        assert winner.make(NAME)
        # Made between the look of the late one and its own attempt.
        with (
            patch.object(talks._journal, "_settled", return_value=None),
            pytest.raises(ConversationError, match="did not answer, or refused"),
        ):
            talks.end_turn(late, [3])
        winner.append(NAME, (), turn_words([1, 2], ()))
        with pytest.raises(ConversationError, match="open it again"):
            talks.end_turn(late, [3])
        assert talks.open(NAME).token_ids == (1, 2)
        assert set(client.sequences.list()) == {NAME, NAME + NAME_SUFFIX}


def test_words_of_half_a_turn_kept_its_conversation_shut(
    talks: Conversations, client: MemoryClient, store: MemoryStore
) -> None:
    """Bug: as above, where the rest of a long turn was not taken."""
    talk = talks.end_turn(talks.open(NAME), [7, 8])
    parts = itertools.count()
    store.faults.append_rejection = lambda *_: Reason.DRAM_FULL if next(parts) else None
    with pytest.raises(ConversationError, match="could not be saved"):
        talks.end_turn(talk, numbered(CHUNK_WORDS + 50))
    store.faults.append_rejection = lambda *_: None
    found = talks.open(NAME)
    assert found.token_ids == (7, 8)
    assert found.told.has_rest
    assert talks.end_turn(found, [1, 2]).token_ids == talks.open(NAME).token_ids == (7, 8, 1, 2)


def test_a_turn_that_is_not_durable_is_told(talks: Conversations, client: MemoryClient) -> None:
    talk = talks.open(NAME)
    with (
        patch.object(client.sequences, "flush", return_value=None),
        pytest.raises(ConversationError, match="could not be made durable"),
    ):
        talks.end_turn(talk, [1])
