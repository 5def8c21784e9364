"""Conversations in a store in memory: what they say and what of them is stored."""

from dataclasses import replace

import pytest

from engine_adapters.conversation.conversations import (
    NAME_BYTES_MAX,
    Conversation,
    Conversations,
)
from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import make_cut
from engine_adapters.conversation.journal import (
    CHUNK_WORDS,
    NAME_SUFFIX,
    words_layout,
)
from engine_adapters.conversation.usable_states import UsableStates
from kvstored_client import AppendItem, LayerState, Reason, Rotary, StateKind, StateLayout
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from kvstored_contract.keys import history_keys
from tests.support.rows import Rows

LAYOUT = StateLayout(
    model="talking",
    dtype="float32",
    layers=(LayerState(StateKind.KV, 64), LayerState(StateKind.HIDDEN, 32)),
    chunk_tokens=16,
)
ROWS = Rows(LAYOUT)
NAME = "a talk"
LEASE_MS = 1000


def numbered(count: int, first: int = 0) -> list[int]:
    return [n % 500 for n in range(first, first + count)]


def save_states(client: MemoryClient, talk: Conversation, stop: int, *, flushes: bool) -> None:
    """Adds states of the tokens before ``stop`` to the conversation's sequence."""
    info = client.sequences.get(talk.name) or client.sequences.create(talk.name, LAYOUT)
    assert info is not None
    first = info.staged_tokens
    keys = history_keys(
        namespace="default", layout=LAYOUT, token_ids=talk.token_ids[:stop], cuts=talk.cuts
    )
    payload = ROWS.snapshot(talk.token_ids[first:stop])
    region = client.allocate(len(payload))
    assert region is not None
    with region:
        region.view[: len(payload)] = payload
        item = AppendItem(
            sequence=talk.name,
            first_token=first,
            first_row=0,
            token_count=stop - first,
            keys=keys[first // 16 : stop // 16],
        )
        report = client.append(LAYOUT, region, stop - first, [item])
    assert report.results[0].is_taken
    if flushes:
        tail_key = keys[-1] if stop % 16 else b""
        assert client.sequences.flush(talk.name, tail_key, expected_tokens=stop)


def test_a_new_name_is_an_empty_conversation(talks: Conversations) -> None:
    talk = talks.open(NAME)
    assert (talk.token_ids, talk.cuts, talk.computed_tokens) == ((), (), 0)


def test_a_conversation_without_a_turn_stayed_for_ever(
    talks: Conversations, client: MemoryClient
) -> None:
    """Bug: opening made its sequence, though a turn may never end, and the names are counted."""
    talk = talks.open(NAME)
    assert client.sequences.list() == []
    with pytest.raises(ConversationError, match="could not be forked"):
        talks.fork(NAME, "a fork")
    assert not talks.delete(NAME)
    talk = talks.end_turn(talk, [1, 2])
    assert talks.names() == [NAME]
    assert talks.open(NAME) == talk


def test_what_was_said_is_there_for_another_client(
    talks: Conversations, store: MemoryStore
) -> None:
    """Also where it fills chunks of words."""
    said: list[int] = []
    talk = talks.open(NAME)
    for number, count in enumerate([5, 0, CHUNK_WORDS, 3 * CHUNK_WORDS - 1, 1]):
        turn = numbered(count, number)
        talk = talks.end_turn(talk, turn)
        said += turn
        with MemoryClient(store) as other:
            assert Conversations(other, LAYOUT.model).open(NAME) == talk
        assert list(talk.token_ids) == said


def test_a_turn_whose_writer_died_has_not_happened(
    talks: Conversations, client: MemoryClient
) -> None:
    talk = talks.end_turn(talks.open(NAME), [1, 2])
    layout = words_layout(LAYOUT.model)
    # As a process killed in the middle leaves them: without the word that ends a turn.
    talks._journal.append(NAME, talk.words, [7, 8, 9])
    again = talks.open(NAME)
    assert again.token_ids == (1, 2)
    again = talks.end_turn(again, [3])
    assert talks.open(NAME) == again
    assert again.token_ids == (1, 2, 3)
    assert client.register(layout)


def test_two_that_go_on_at_once_do_not_mix(talks: Conversations) -> None:
    one, other = talks.open(NAME), talks.open(NAME)
    talks.end_turn(one, [1, 2])
    with pytest.raises(ConversationError, match="open it again"):
        talks.end_turn(other, [3, 4])
    assert talks.open(NAME).token_ids == (1, 2)


def test_cuts_are_kept_with_the_tokens(talks: Conversations) -> None:
    talk = talks.end_turn(talks.open(NAME), numbered(20))
    talk = talks.truncate(talk, [range(2), range(7, 19)])
    talk = talks.end_turn(talk, numbered(5, 20))
    assert talks.open(NAME) == talk
    assert [(cut.first_token, cut.kept) for cut in talk.cuts] == [(19, (range(2), range(7, 19)))]
    with pytest.raises(ConversationError, match="of the 19 positions"):
        talks.truncate(talk, [range(25)])


def test_states_are_found_as_far_as_they_are_stored(
    talks: Conversations, client: MemoryClient
) -> None:
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    assert talks.stored(talk, LAYOUT, lease_ms=LEASE_MS).usable == UsableStates()
    save_states(client, talk, 40, flushes=True)
    found = talks.stored(talk, LAYOUT, lease_ms=LEASE_MS)
    assert (found.usable.next_token, found.stop, len(found.keys)) == (40, 40, 3)
    assert found.lease is not None
    assert found.lease.release()


def test_pieces_of_a_cut_conversation_begin_inside_chunks(
    talks: Conversations, client: MemoryClient
) -> None:
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    talk = talks.truncate(talk, [range(3), range(21, 40)])
    talk = talks.end_turn(talk, numbered(20, 41))
    save_states(client, talk, 60, flushes=True)
    found = talks.stored(talks.open(NAME), LAYOUT, lease_ms=LEASE_MS)
    assert found.usable.next_token == 60
    assert [
        (piece.chunk, piece.first_row, piece.token_count, piece.first_position)
        for piece in found.usable.pieces
    ] == [(0, 0, 3, 0), (1, 5, 11, 3), (2, 0, 16, 14), (3, 0, 12, 30)]


def test_states_that_go_further_than_the_tokens_do_not_count(
    talks: Conversations, client: MemoryClient
) -> None:
    """As after a process that was killed before the end of its turn."""
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    ahead = Conversation(NAME, (), talks.end_turn(talks.open("other"), numbered(80)).told)
    save_states(client, ahead, 79, flushes=True)
    found = talks.stored(talk, LAYOUT, lease_ms=LEASE_MS)
    assert found.usable.next_token == 32


def test_a_tail_of_other_tokens_does_not_count(talks: Conversations, client: MemoryClient) -> None:
    talk = talks.end_turn(talks.open(NAME), [*numbered(36), 7, 7, 7, 7, 7])
    ahead = Conversation(NAME, (), talks.end_turn(talks.open("other"), numbered(41)).told)
    save_states(client, ahead, 40, flushes=True)
    found = talks.stored(talk, LAYOUT, lease_ms=LEASE_MS)
    assert (found.stop, found.usable.next_token) == (32, 32)


def test_a_tail_that_was_kept_before_a_cut_does_not_count_after_it(
    talks: Conversations, client: MemoryClient
) -> None:
    """Its key is that of the tokens alone: the ones after the cut depend on tokens that are gone.

    Fails when the key of the tail is made without the cuts.
    """
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 36, flushes=True)
    cut = make_cut((), 35, [range(3), range(21, 35)])
    uncut = Conversation(NAME, (), talk.told)
    cut_talk = Conversation(NAME, (), replace(talk.told, cuts=(cut,)))
    assert talks.stored(uncut, LAYOUT, lease_ms=LEASE_MS).stop == 36
    found = talks.stored(cut_talk, LAYOUT, lease_ms=LEASE_MS)
    assert (found.stop, len(found.keys)) == (32, 2)


def test_a_tail_that_was_kept_after_a_cut_counts(
    talks: Conversations, client: MemoryClient
) -> None:
    """With the cut in the chunk of the tail, and in one before it. Fails as the test above."""
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    talk = talks.truncate(talk, [range(3), range(21, 40)])
    for total in (46, 71):
        talk = talks.end_turn(talk, numbered(total - len(talk.token_ids), len(talk.token_ids)))
        save_states(client, talk, total - 1, flushes=True)
        found = talks.stored(talk, LAYOUT, lease_ms=LEASE_MS)
        assert found.stop == total - 1
        assert found.usable.next_token == total - 1
        assert (
            found.keys[-1]
            == history_keys(
                namespace="default",
                layout=LAYOUT,
                token_ids=talk.token_ids[: total - 1],
                cuts=talk.cuts,
            )[-1]
        )


def test_both_sides_of_a_fork_go_on(talks: Conversations, client: MemoryClient) -> None:
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    fork = talks.fork(NAME, "a fork")
    assert talks.stored(fork, LAYOUT, lease_ms=LEASE_MS).usable.next_token == 40
    one = talks.end_turn(talk, [1])
    other = talks.end_turn(fork, [2])
    assert (one.token_ids[-1], other.token_ids[-1]) == (1, 2)
    assert (talks.open(NAME), talks.open("a fork")) == (one, other)
    with pytest.raises(ConversationError, match="could not be forked"):
        talks.fork(NAME, "a fork")


def test_a_fork_without_words_left_states(talks: Conversations, client: MemoryClient) -> None:
    """Bug: the states were copied before it was seen that no turn has ended yet."""
    client.sequences.create(NAME, LAYOUT)
    with pytest.raises(ConversationError, match="no turn yet"):
        talks.fork(NAME, "a fork")
    assert client.sequences.list() == [NAME]


def test_a_fork_whose_words_got_no_name_left_its_states(
    talks: Conversations, client: MemoryClient
) -> None:
    """Bug: at the limit of names the copy of the states had taken the last one."""
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    names = client.sequences.list()
    client.sequences.create("a fork" + NAME_SUFFIX, words_layout(LAYOUT.model))
    with pytest.raises(ConversationError, match="could not be forked"):
        talks.fork(NAME, "a fork")
    assert set(client.sequences.list()) == {*names, "a fork" + NAME_SUFFIX}


def test_a_conversation_whose_states_stayed_was_forgotten(
    talks: Conversations, client: MemoryClient, store: MemoryStore
) -> None:
    """Bug: where only the deletion of the words was answered, nothing named the states any more."""
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    store.faults.refusals[CallName.SEQUENCE_DELETE] = Reason.INTERNAL
    with pytest.raises(ConversationError, match="to forget the states"):
        talks.delete(NAME)
    assert talks.open(NAME) == talk
    del store.faults.refusals[CallName.SEQUENCE_DELETE]
    assert talks.delete(NAME)
    assert client.sequences.list() == []


def test_a_first_turn_that_got_no_name_left_its_states(
    talks: Conversations, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: at the limit of names they had taken the last one."""
    client.sequences.create(NAME, LAYOUT)
    talk = talks.open(NAME)

    def refuse(_: str) -> None:
        raise ConversationError("no more names")

    monkeypatch.setattr(talks._journal, "make", refuse)
    with pytest.raises(ConversationError, match="no more names"):
        talks.end_turn(talk, numbered(3))
    assert client.sequences.list() == []


def test_a_conversation_that_forked_before_a_cut_is_a_hit(
    talks: Conversations, client: MemoryClient
) -> None:
    """What the other one computes after its cut has other keys, although its tokens are the same.

    Fails when ``history_keys`` does not look at cuts.
    """
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    fork = talks.fork(NAME, "a fork")
    talk = talks.truncate(talk, [range(8, 40)])
    talk = talks.end_turn(talk, numbered(30, 41))
    save_states(client, talk, 70, flushes=True)
    assert talks.stored(talk, LAYOUT, lease_ms=LEASE_MS).usable.next_token == 70
    assert talks.stored(fork, LAYOUT, lease_ms=LEASE_MS).usable.next_token == 40
    fork = talks.end_turn(fork, numbered(30, 41))
    assert talk.token_ids == fork.token_ids
    assert talks.stored(fork, LAYOUT, lease_ms=LEASE_MS).usable.next_token == 32


def test_a_fresh_prompt_of_what_a_cut_has_left_is_a_miss(
    talks: Conversations, client: MemoryClient
) -> None:
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    talk = talks.truncate(talk, [range(8, 40)])
    talk = talks.end_turn(talk, numbered(30, 41))
    save_states(client, talk, 70, flushes=True)
    rest = client.prefix_keys(LAYOUT, talk.token_ids[8:])
    assert client.match(LAYOUT, rest).chunk_count == 0
    whole = client.prefix_keys(LAYOUT, talk.token_ids)
    assert client.match(LAYOUT, whole).chunk_count == 40 // LAYOUT.chunk_tokens


def test_a_deleted_conversation_is_new(talks: Conversations, client: MemoryClient) -> None:
    talk = talks.end_turn(talks.open(NAME), numbered(41))
    save_states(client, talk, 40, flushes=True)
    assert talks.delete(NAME)
    assert not talks.delete(NAME)
    assert client.sequences.list() == []
    assert talks.open(NAME).token_ids == ()


def test_another_model_is_told(talks: Conversations, client: MemoryClient) -> None:
    talks.end_turn(talks.open(NAME), [1, 2])
    with pytest.raises(ConversationError, match="another model"):
        Conversations(client, "another").open(NAME)


@pytest.mark.parametrize("name", ["", "x" + NAME_SUFFIX])
def test_names_that_are_not_for_conversations(talks: Conversations, name: str) -> None:
    with pytest.raises(ConversationError, match="a conversation has a name"):
        talks.open(name)


def test_a_name_that_is_too_long_was_a_store_that_did_not_answer(talks: Conversations) -> None:
    """Bug: the user was sent to the daemon's log."""
    talk = talks.end_turn(talks.open("n" * NAME_BYTES_MAX), [1])
    assert talks.open(talk.name) == talk
    with pytest.raises(ConversationError, match=f"has {NAME_BYTES_MAX + 1} bytes; it may have"):
        talks.open("n" * (NAME_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (replace(LAYOUT, rotary=Rotary.ABSENT), "hold the positions"),
        (replace(LAYOUT, rotary=Rotary.ROTATED), "hold the positions"),
        (
            replace(LAYOUT, layers=(LayerState(StateKind.NONE, 0), *LAYOUT.layers)),
            "recomputes 1 layers",
        ),
    ],
)
def test_states_that_cannot_move_are_refused_after_a_cut(
    talks: Conversations, layout: StateLayout, reason: str
) -> None:
    talk = talks.end_turn(talks.open(NAME), numbered(20))
    assert talks.stored(talk, layout, lease_ms=LEASE_MS).usable == UsableStates()
    talk = talks.truncate(talk, [range(4)])
    with pytest.raises(ConversationError, match=reason):
        talks.stored(talk, layout, lease_ms=LEASE_MS)
