"""Who may change an open tail, in every store: the same tests for a daemon and one in memory."""

from collections.abc import Callable

import pytest

from kvstored_client import Client, SequenceConflictError
from kvstored_contract.reasons import Reason
from tests.kvstored_client.sequence_conformance import (
    TOKENS,
    append,
    check_bytes,
    flush,
    known,
    lengths,
    rows_of,
)
from tests.support.rows import MIXED

Connect = Callable[..., Client]


class OwnershipConformance:
    """Of which tokens rows are, only the session knows that has appended them."""

    def test_rows_of_two_clients_shared_a_chunk(
        self, client: Client, connect: Connect, name: str
    ) -> None:
        """Bug: as many rows of another client passed for ours, and were stored under our key."""
        client.sequences.create(name, MIXED)
        append(client, {name: range(21)})
        other = connect()
        assert lengths(append(other, {name: range(21, 34)})) == [(21, Reason.SEQUENCE_CONFLICT)]
        with pytest.raises(SequenceConflictError):
            flush(other, name, 21)
        with pytest.raises(SequenceConflictError):
            other.sequences.truncate_tokens(name, 2)
        fork = other.sequences.fork(name, f"{name}2")
        assert fork is not None
        assert fork.staged_tokens == 16
        assert flush(client, name, 21).durable_tokens == 21
        check_bytes(other, 21, tail=True)

    def test_what_is_flushed_is_everybodys(
        self, client: Client, connect: Connect, name: str
    ) -> None:
        """What is left of it after a cut belongs to who has made that."""
        client.sequences.create(name, MIXED)
        append(client, {name: range(25)})
        flush(client, name, 25)
        other = connect()
        fork = other.sequences.fork(name, f"{name}2")
        assert fork is not None
        assert fork.staged_tokens == 25
        assert other.sequences.truncate_tokens(name, 4) is not None
        assert lengths(append(client, {name: range(21, 23)})) == [(21, Reason.SEQUENCE_CONFLICT)]
        assert lengths(append(other, {name: range(21, 34)})) == [(34, Reason.UNSPECIFIED)]
        assert flush(other, name, 34).durable_tokens == 34
        check_bytes(client, 34, tail=True)

    def test_a_flushed_tail_was_flushed_once_more_under_another_key(
        self, client: Client, connect: Connect, name: str
    ) -> None:
        """Bug: a client whose rows went with a lost session named those of another, as many."""
        client.sequences.create(name, MIXED)
        append(client, {name: range(21)})
        flush(client, name, 21)
        other = connect()
        wrong_key = rows_of(other).tail_key([*TOKENS[:20], 7])
        with pytest.raises(SequenceConflictError):
            other.sequences.flush(name, wrong_key, expected_tokens=21)
        assert known(other, name).tail_key == rows_of(other).tail_key(TOKENS[:21])
        assert flush(other, name, 21).durable_tokens == 21
