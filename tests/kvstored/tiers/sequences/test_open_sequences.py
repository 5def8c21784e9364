"""Whose sequences they are, and what the end of a session gives back."""

from pathlib import Path

import pytest

from kvstored.store.sequences.rules import (
    SequenceConflictError,
    SequenceExistsError,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.tiers.chunks.requests import AppendOutcome
from kvstored.tiers.sequences import owned_sequences
from kvstored.tiers.sequences.open_sequence import SequenceId
from kvstored_contract.reasons import Reason
from tests.support.appends import (
    ME,
    OTHER,
    ROWS,
    append,
    check_bytes,
    create,
    durable,
    flush,
    open_bytes,
)
from tests.support.devices import GatedDevice, Wrapping
from tests.support.rows import MIXED
from tests.support.stores import (
    MIB,
    NAMESPACE,
    StoreUnderTest,
    key,
    open_store,
)
from tests.support.waiting import wait_until


def test_the_end_of_a_session_gives_back_what_is_not_flushed(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "named", "flushed", "other")
    create(opened_rows, "ephemeral", is_ephemeral=True)
    append(opened_rows, {name: range(20) for name in ("named", "flushed", "ephemeral")})
    flush(opened_rows, "flushed", 20)
    append(opened_rows, {"flushed": range(20, 25)})
    append(opened_rows, {"other": range(3)}, caller=ME)
    flush(opened_rows, "other", 3)
    append(opened_rows, {"other": range(3, 5)}, caller=OTHER)
    assert opened_rows.store.sequences.is_ephemeral(ME, "ephemeral")
    opened_rows.store.open_sequences.end_session(1)
    with pytest.raises(SequenceUnknownError):
        opened_rows.store.sequences.get(ME, "ephemeral")
    sequences = opened_rows.store.sequences
    assert sequences.get(OTHER, "named").length_tokens == 16
    assert sequences.get(OTHER, "flushed").length_tokens == 20
    assert sequences.get(OTHER, "other").length_tokens == 5
    opened_rows.store.open_sequences.end_session(2)
    assert open_bytes(opened_rows) == 0
    durable(opened_rows, "named", 1)
    wait_until(lambda: not opened_rows.store.open_sequences._sequences)
    assert not opened_rows.store.open_sequences._owned


def test_chunks_become_durable_after_the_end_of_their_session(tmp_path: Path) -> None:
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(33)})
        opened_rows.store.open_sequences.end_session(1)
        assert opened_rows.store.sequences.get(ME, "a").record().keys == ()
        for device in devices:
            device.gate.set()
        durable(opened_rows, "a", 2)


def test_an_ephemeral_sequence_is_its_sessions_own(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a", is_ephemeral=True)
    with pytest.raises(SequenceUnknownError):
        opened_rows.store.sequences.get(OTHER, "a")
    opened_rows.store.sequences.create(OTHER, "a", MIXED, is_ephemeral=True)
    assert opened_rows.store.sequences.list(ME) == []
    for is_ephemeral in (False, True):
        with pytest.raises(SequenceExistsError):
            create(opened_rows, "a", is_ephemeral=is_ephemeral)
    create(opened_rows, "b")
    with pytest.raises(SequenceExistsError):
        create(opened_rows, "b", is_ephemeral=True)
    opened_rows.store.sequences.delete(ME, "a")
    with pytest.raises(SequenceUnknownError):
        opened_rows.store.sequences.get(ME, "a")


def test_an_ephemeral_sequence_that_does_not_exist_hides_none(opened_rows: StoreUnderTest) -> None:
    """Bug: who waited for a deleted one, or made one, hid the named one meanwhile."""
    create(opened_rows, "a")
    with opened_rows.store.open_sequences.held([SequenceId(NAMESPACE, "a", 1)]):
        assert not opened_rows.store.sequences.is_ephemeral(ME, "a")
        assert opened_rows.store.sequences.get(ME, "a").length_tokens == 0
    create(opened_rows, "b", is_ephemeral=True)
    assert opened_rows.store.sequences.is_ephemeral(ME, "b")
    opened_rows.store.open_sequences.end_session(1)
    assert not opened_rows.store.sequences.is_ephemeral(ME, "b")
    assert not opened_rows.store.open_sequences._ephemeral


@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_a_fork_that_cannot_be_made_belongs_to_nobody(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, is_ephemeral: bool
) -> None:
    """Bug: while somebody waited for its name, the end of the session failed on it."""
    create(opened_rows, "a", is_ephemeral=is_ephemeral)
    append(opened_rows, {"a": range(20)})
    sequences, all_opened = (
        opened_rows.store.sequences,
        opened_rows.store.open_sequences,
    )
    identity = SequenceId(NAMESPACE, "b", ME.session_id * is_ephemeral)
    owned: list[int] = []

    def refuse(*_: object) -> None:
        # As somebody who waits for the name.
        all_opened._sequences[identity].users += 1
        owned.append(all_opened._sequences[identity].owner)
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(all_opened.table, "create", refuse)
        patch.setattr(all_opened, "make_ephemeral", refuse)
        with pytest.raises(SequenceStorageError):
            sequences.fork(ME, "a", "b", 0)
    assert owned == [1]
    assert all_opened._sequences[identity].owner == 0
    all_opened._sequences[identity].users -= 1
    opened_rows.store.open_sequences.end_session(1)
    assert open_bytes(opened_rows) == 0


def test_the_end_of_a_session_forgets_what_was_never_looked_up(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a", "b")
    append(opened_rows, {"b": range(3)})
    all_opened = opened_rows.store.open_sequences
    with all_opened.held([SequenceId(NAMESPACE, "a")]) as held:
        (sequence,) = held.values()
        all_opened.own(sequence, 1, 0)
        sequence.users += 1
    sequence.state = None
    opened_rows.store.open_sequences.end_session(1)
    assert sequence.owner == 0
    assert open_bytes(opened_rows) == 0
    sequence.users -= 1


def test_a_session_owns_so_many_sequences(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_sequences, "OPEN_SEQUENCES_PER_SESSION_MAX", 2)
    create(opened_rows, "a", "b", "c")
    assert append(opened_rows, {name: range(1) for name in "abc"}) == [
        AppendOutcome(1),
        AppendOutcome(1),
        AppendOutcome(0, Reason.LIMIT_EXCEEDED),
    ]
    assert append(opened_rows, {"c": range(1)}, caller=OTHER) == [AppendOutcome(1)]
    flush(opened_rows, "c", 1, caller=OTHER)
    opened_rows.store.sequences.delete(ME, "a")
    assert append(opened_rows, {"b": range(1, 2), "c": range(1, 2)}) == [
        AppendOutcome(2),
        AppendOutcome(2),
    ]


def test_the_sequences_of_a_session_have_so_many_chunks(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_sequences, "OPEN_CHUNKS_PER_SESSION_MAX", 3)
    create(opened_rows, "a", "b", is_ephemeral=True)
    assert append(opened_rows, {"a": range(33), "b": range(33)}) == [
        AppendOutcome(33),
        AppendOutcome(0, Reason.LIMIT_EXCEEDED),
    ]
    with pytest.raises(SequenceLimitError, match="at most 3 chunks"):
        opened_rows.store.sequences.create(ME, "c", MIXED, keys=[key(1), key(2)], is_ephemeral=True)
    with pytest.raises(SequenceLimitError):
        opened_rows.store.sequences.append(ME, "b", [key(1), key(2)], 0)
    with pytest.raises(SequenceLimitError):
        opened_rows.store.sequences.fork(ME, "a", "d", 0)
    with pytest.raises(SequenceUnknownError):
        opened_rows.store.sequences.get(ME, "d")
    opened_rows.store.sequences.delete(ME, "a")
    assert append(opened_rows, {"b": range(33)}) == [AppendOutcome(33)]
    opened_rows.store.open_sequences.end_session(1)
    assert not opened_rows.store.open_sequences._owned


@pytest.mark.parametrize("limit", ["OPEN_SEQUENCES_PER_SESSION_MAX", "OPEN_CHUNKS_PER_SESSION_MAX"])
@pytest.mark.parametrize("length", [32, 33])
def test_a_session_could_have_no_more_conversations_after_so_many(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, limit: str, length: int
) -> None:
    """Bug: a sequence counted until its session ended, also when all of it was durable.

    A server has one session for as long as it runs.
    """
    monkeypatch.setattr(owned_sequences, limit, 2)
    create(opened_rows, *"abcd")
    for name in "abcd":
        assert append(opened_rows, {name: range(length)}) == [AppendOutcome(length)]
        flush(opened_rows, name, length)
    for name in "ab":
        assert append(opened_rows, {name: range(length, length + 1)}) == [AppendOutcome(length + 1)]
        flush(opened_rows, name, length + 1)
    opened_rows.store.open_sequences.end_session(1)
    wait_until(lambda: not opened_rows.store.open_sequences._sequences)
    assert open_bytes(opened_rows) == 0
    assert not opened_rows.store.open_sequences._owned


def test_rows_that_are_on_their_way_can_be_taken_back(tmp_path: Path) -> None:
    """As a journal does whose words could not be made durable in time."""
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        sequences = opened_rows.store.sequences
        for device in devices:
            device.gate.set()
        create(opened_rows, "a")
        append(opened_rows, {"a": range(5)})
        flush(opened_rows, "a", 5)
        for device in devices:
            device.gate.clear()
        append(opened_rows, {"a": range(5, 20)})
        before = sequences.get(ME, "a")
        assert (before.length_tokens, before.durable_tokens) == (20, 5)
        state = sequences.truncate_tokens(ME, "a", 20 - 5)
        assert (state.length_tokens, state.durable_tokens) == (5, 5)
        assert append(opened_rows, {"a": range(5, 21)}) == [AppendOutcome(21)]
        for device in devices:
            device.gate.set()
        assert flush(opened_rows, "a", 21).durable_tokens == 21
        check_bytes(opened_rows, 21)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_rows_that_another_client_has_not_flushed_are_cut_and_forked_by_nobody_else(
    opened_rows: StoreUnderTest, is_flushed: bool
) -> None:
    """Bug: who had cut or forked them could flush what was left under a key of its own.

    Flushed ones are everybody's; what is left after a cut belongs to who made it.
    """
    sequences = opened_rows.store.sequences
    create(opened_rows, "a")
    append(opened_rows, {"a": range(16 + 9)}, caller=OTHER)
    if is_flushed:
        flush(opened_rows, "a", 25, caller=OTHER)
        assert sequences.fork(ME, "a", "copy", 0).length_tokens == 25
        assert sequences.truncate_tokens(ME, "a", 4).length_tokens == 21
        with pytest.raises(SequenceConflictError, match="another client"):
            flush(opened_rows, "a", 21, caller=OTHER)
        assert append(opened_rows, {"a": range(21, 23)}) == [AppendOutcome(23)]
        assert flush(opened_rows, "a", 23).durable_tokens == 23
    else:
        with pytest.raises(SequenceConflictError, match="another client"):
            sequences.truncate_tokens(ME, "a", 4)
        assert sequences.fork(ME, "a", "copy", 0).length_tokens == 16
        assert flush(opened_rows, "a", 25, caller=OTHER).durable_tokens == 25


def test_a_flushed_tail_was_flushed_once_more_under_another_key(
    opened_rows: StoreUnderTest,
) -> None:
    """Bug: a client whose rows went with a lost session named those of another one, as many."""
    create(opened_rows, "a")
    append(opened_rows, {"a": range(5)}, caller=OTHER)
    flush(opened_rows, "a", 5, caller=OTHER)
    with pytest.raises(SequenceConflictError, match="under another key"):
        opened_rows.store.sequences.flush(ME, "a", ROWS.tail_key([7] * 5), 5)
    assert flush(opened_rows, "a", 5).durable_tokens == 5
