"""Chunks on their way off the devices: what puts hear meanwhile, and whether they went."""

import pytest

from kvstored.format.identity import ChunkId
from kvstored.store.index.failure import IndexFullError
from kvstored.store.index.index import IndexChange, IndexFailure
from kvstored.store.write.chunk_store import DeletionError
from kvstored.store.write.committer import Commit
from kvstored.tiers.chunks.requests import PutOutcome
from kvstored_contract.reasons import Reason
from tests.support.stores import (
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    put_durable,
)
from tests.support.waiting import soon

CHUNK = ChunkId(NAMESPACE, key(0))


class HeldCommits:
    """Commits that wait until they are let go."""

    def __init__(self, opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held: list[Commit] = []
        self._committer = opened.store._store.committer
        self._submit = self._committer.submit
        monkeypatch.setattr(self._committer, "submit", self._held.append)

    def let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self._committer, "submit", self._submit)
        for commit in self._held:
            self._submit(commit)


@pytest.fixture
def held(opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> HeldCommits:
    """One chunk is durable, and in DRAM; nothing is committed from now on."""
    opened.fill(1)
    put_durable(opened, [0])
    return HeldCommits(opened, monkeypatch)


def test_a_put_was_called_durable_while_its_chunk_was_leaving(
    opened: StoreUnderTest, held: HeldCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: its frame in DRAM was still that of a durable chunk."""
    (gone,) = opened.store._store.evict([CHUNK])
    (early,) = soon(lambda: opened.put([0], timeout_s=0.01))
    assert (early.outcome, early.reason) == (PutOutcome.REJECTED, Reason.DEADLINE)
    held.let_go(monkeypatch)
    (late,) = opened.put([0])
    assert gone.result()
    assert late.durable is not None
    assert late.durable.result() is Reason.UNSPECIFIED
    forget_dram(opened, [0])
    assert opened.store.match(NAMESPACE, [key(0)]) == 1


def test_a_write_began_while_its_chunk_was_being_deleted(
    opened: StoreUnderTest, held: HeldCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it outlived the second deletion, which joined the first and was answered before it.

    The put had looked for deletions before there was one.
    """
    store = opened.store._store
    forget_dram(opened, [0])
    stager = opened.store.put_path._stager
    monkeypatch.setattr(stager, "are_stored", lambda chunks: [False] * len(chunks))
    monkeypatch.setattr(stager, "_refusal", lambda _claim, _deadline: None)
    first = store.delete(CHUNK)
    (ticket,) = opened.put([0])
    assert ticket.durable is not None
    second = store.delete(CHUNK)
    held.let_go(monkeypatch)
    assert first.result()
    assert second.result()
    assert ticket.durable.result() is Reason.DEADLINE
    assert opened.store.match(NAMESPACE, [key(0)]) == 0


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(IndexFailure("broken"), Reason.INTERNAL), (IndexFullError("full"), Reason.STORE_FULL)],
    ids=["broken", "full"],
)
def test_a_deletion_that_failed_was_answered_as_one_of_nothing(
    opened: StoreUnderTest,
    failure: IndexFailure,
    reason: Reason,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened.fill(1)
    put_durable(opened, [0])

    def fail(_: IndexChange) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(opened.store._store.index, "apply", fail)
        deleted = opened.store.delete(NAMESPACE, [key(7), key(0)])
        with pytest.raises(DeletionError, match="still stored") as raised:
            deleted.result()
    assert raised.value.reason is reason
    assert opened.store.match(NAMESPACE, [key(0)]) == 1


def test_a_quarantine_that_failed_took_its_chunk_off_the_table(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: puts called the chunk stored, and no match found it."""
    opened.fill(1)
    put_durable(opened, [0])
    forget_dram(opened, [0])
    store = opened.store._store
    (record,) = store.find([CHUNK])
    assert record is not None

    def full(_: IndexChange) -> None:
        raise IndexFullError("full")

    with monkeypatch.context() as patch:
        patch.setattr(store.index, "apply", full)
        store.quarantine(CHUNK, record)
        pending = store.pending(CHUNK)
        if pending is not None:
            assert not pending.result()
    assert opened.store.match(NAMESPACE, [key(0)]) == 1
    assert opened.put([0])[0].outcome is PutOutcome.EXISTED
