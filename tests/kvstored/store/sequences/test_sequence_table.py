"""Sequences that are durable when a change returns.

Fails when ``SequenceTable._room_for`` refuses nothing (seen: LMDB says that the map is full, and a
second sequence begins to be stored where there is room for one and a half).
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.index.usage import IndexUsage
from kvstored.store.sequences import sequence_table
from kvstored.store.sequences.rules import (
    SequenceExistsError,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored.store.sequences.sequence_table import SequenceStorageError, SequenceTable
from kvstored.store.write.committer import Commit, Committer
from kvstored_contract.reasons import Reason
from tests.support.stores import LAYOUT, MIB, NAMESPACE, key
from tests.support.waiting import PATIENCE_S, SOON_S, soon, wait_until


class InlineCommitter(Committer):
    """Commits at once, or refuses for ``reason``."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.reason = Reason.UNSPECIFIED

    def submit(self, commit: Commit) -> None:
        if self.reason is Reason.UNSPECIFIED:
            self.index.apply(commit.change)
        commit.done(self.reason)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    index = Index.open(tmp_path / "index", map_bytes=16 * MIB)
    yield index
    index.close()


@pytest.fixture
def committer(index: Index) -> InlineCommitter:
    return InlineCommitter(index)


@pytest.fixture
def table(index: Index, committer: InlineCommitter) -> SequenceTable:
    return SequenceTable(index=index, committer=committer)


def record_of(*numbers: int) -> SequenceRecord:
    return SequenceRecord(layout_id=LAYOUT.layout_id, keys=tuple(map(key, numbers)))


def test_life_of_a_record(table: SequenceTable) -> None:
    table.create(NAMESPACE, "chat", record_of())
    table.create(NAMESPACE, "branch", record_of(1))
    table.store([(NAMESPACE, "chat", record_of(1, 2)), (NAMESPACE, "branch", record_of())])
    assert table.get(NAMESPACE, "chat") == record_of(1, 2)
    assert table.get(NAMESPACE, "branch") == record_of()
    assert table.list(NAMESPACE) == ["branch", "chat"]
    assert table.list(b"x" * 16) == []
    table.delete(NAMESPACE, "chat")
    assert table.list(NAMESPACE) == ["branch"]


def test_names_that_are_taken_or_unknown(table: SequenceTable) -> None:
    table.create(NAMESPACE, "chat", record_of())
    with pytest.raises(SequenceExistsError, match="chat"):
        table.create(NAMESPACE, "chat", record_of())
    with pytest.raises(SequenceUnknownError, match="other"):
        table.delete(NAMESPACE, "other")
    with pytest.raises(SequenceUnknownError, match="other"):
        table.get(NAMESPACE, "other")


def test_a_namespace_has_so_many(table: SequenceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_table, "SEQUENCES_PER_NAMESPACE_MAX", 2)
    for name in ("a", "b"):
        table.create(NAMESPACE, name, record_of())
    with pytest.raises(SequenceLimitError, match="at most 2"):
        table.create(NAMESPACE, "c", record_of())
    table.create(b"x" * 16, "c", record_of())
    table.delete(NAMESPACE, "a")
    table.create(NAMESPACE, "c", record_of())


def test_change_that_is_not_stored_is_an_error(
    table: SequenceTable, committer: InlineCommitter
) -> None:
    committer.reason = Reason.INTERNAL
    with pytest.raises(SequenceStorageError, match="INTERNAL") as caught:
        table.create(NAMESPACE, "chat", record_of())
    assert caught.value.reason is Reason.INTERNAL
    assert table.list(NAMESPACE) == []


@pytest.fixture
def small_table(tmp_path: Path) -> Iterator[SequenceTable]:
    """Has room for few sequences, and knows for how many bytes."""
    index = Index.open(tmp_path / "small", map_bytes=MIB)
    yield SequenceTable(index=index, committer=InlineCommitter(index))
    index.close()


KEYS = range(512)
"""Of one sequence: four pages."""


def filled(table: SequenceTable) -> list[str]:
    """Creates sequences until one is refused; names of the others."""
    names = [f"s{number}" for number in range(MIB // (32 * len(KEYS)))]
    for number, name in enumerate(names):
        try:
            table.create(NAMESPACE, name, record_of(*KEYS))
        except SequenceStorageError:
            return names[:number]
    raise AssertionError("no sequence was refused")


def test_sequences_leave_room_for_chunks_and_deletions(small_table: SequenceTable) -> None:
    names = filled(small_table)
    assert small_table.list(NAMESPACE) == sorted(names)
    # An eighth of the least map.
    assert MIB // 16 < len(names) * len(KEYS) * 32 < MIB // 8
    with pytest.raises(SequenceStorageError, match="STORE_FULL") as caught:
        small_table.store([(NAMESPACE, names[0], record_of(*KEYS, 9999))])
    assert caught.value.reason is Reason.STORE_FULL
    assert small_table.get(NAMESPACE, names[0]) == record_of(*KEYS)


def test_what_takes_no_more_room_is_stored_when_sequences_have_taken_theirs(
    small_table: SequenceTable,
) -> None:
    names = filled(small_table)
    small_table.store([(NAMESPACE, names[0], record_of(*reversed(KEYS)))])
    small_table.store([(NAMESPACE, names[1], record_of(1))])
    small_table.delete(NAMESPACE, names[2])
    assert small_table.get(NAMESPACE, names[0]) == record_of(*reversed(KEYS))
    assert small_table.get(NAMESPACE, names[1]) == record_of(1)
    small_table.create(NAMESPACE, names[2], record_of(*KEYS))


def test_records_on_their_way_count(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the index does not know of yet is counted beside it, and given back."""
    waiting: list[Commit] = []

    class SlowCommitter(InlineCommitter):
        def submit(self, commit: Commit) -> None:
            waiting.append(commit)
            if len(waiting) == 1:
                with pytest.raises(SequenceStorageError, match="STORE_FULL"):
                    slow_table.store([(NAMESPACE, "second", record_of(*KEYS))])
            super().submit(commit)

    slow_table = SequenceTable(index=index, committer=SlowCommitter(index))
    needed_bytes = len(KEYS) * 32 + sequence_table.PAGE_BYTES
    monkeypatch.setattr(IndexUsage, "left_others_bytes", needed_bytes * 3 // 2)
    slow_table.store([(NAMESPACE, "first", record_of(*KEYS))])
    slow_table.store([(NAMESPACE, "second", record_of(*KEYS))])
    assert len(waiting) == 2


class GatedCommitter(InlineCommitter):
    """Commits what concerns one namespace when its gate is open; ``waiting`` counts these."""

    def __init__(self, index: Index, namespace_id: bytes) -> None:
        super().__init__(index)
        self.gate = threading.Event()
        self.waiting = 0
        self._namespace_id = namespace_id

    def submit(self, commit: Commit) -> None:
        change = commit.change
        names = [*change.sequence_puts, *change.sequence_deletes]
        if any(name[0] == self._namespace_id for name in names):
            self.waiting += 1
            assert self.gate.wait(PATIENCE_S)
        super().submit(commit)


HELD = b"h" * 16


@pytest.fixture
def held(index: Index) -> Iterator[tuple[SequenceTable, GatedCommitter, ThreadPoolExecutor]]:
    """A table whose changes in one namespace wait for a gate, and threads to make them."""
    committer = GatedCommitter(index, HELD)
    with ThreadPoolExecutor(4) as threads:
        yield SequenceTable(index=index, committer=committer), committer, threads
        committer.gate.set()


def test_a_commit_that_hangs_holds_up_no_other_sequences(
    held: tuple[SequenceTable, GatedCommitter, ThreadPoolExecutor],
) -> None:
    """Bug: one lock was held over every commit (seen: the other create never returns)."""
    table, committer, threads = held
    made = [threads.submit(table.create, HELD, name, record_of()) for name in ("a", "b")]
    wait_until(lambda: committer.waiting == 2, within_s=SOON_S)
    soon(lambda: table.create(NAMESPACE, "c", record_of()))
    table.delete(NAMESPACE, "c")
    assert not any(one.done() for one in made)
    committer.gate.set()
    for one in made:
        one.result(PATIENCE_S)
    assert table.list(HELD) == ["a", "b"]


def test_sequences_on_their_way_count_for_the_limit(
    held: tuple[SequenceTable, GatedCommitter, ThreadPoolExecutor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when a create counts only after its commit (seen: a third is made)."""
    monkeypatch.setattr(sequence_table, "SEQUENCES_PER_NAMESPACE_MAX", 2)
    table, committer, threads = held
    made = [threads.submit(table.create, HELD, name, record_of()) for name in ("a", "b")]
    wait_until(lambda: committer.waiting == 2, within_s=SOON_S)
    with pytest.raises(SequenceLimitError, match="at most 2"):
        soon(lambda: table.create(HELD, "c", record_of()))
    committer.reason = Reason.INTERNAL
    committer.gate.set()
    for one in made:
        with pytest.raises(SequenceStorageError):
            one.result(PATIENCE_S)
    committer.reason = Reason.UNSPECIFIED
    for name in ("a", "b"):
        table.create(HELD, name, record_of())
    with pytest.raises(SequenceLimitError):
        table.create(HELD, "c", record_of())


@pytest.mark.parametrize("is_asked_meanwhile", [False, True])
def test_a_deletion_that_is_the_first_change_counts_once(
    held: tuple[SequenceTable, GatedCommitter, ThreadPoolExecutor],
    index: Index,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_asked_meanwhile: bool,
) -> None:
    """Fails when a deletion begins to count after its commit (seen: one too many is made).

    A create meanwhile has them counted, and would hide that.
    """
    monkeypatch.setattr(sequence_table, "SEQUENCES_PER_NAMESPACE_MAX", 2)
    index.apply(IndexChange(sequence_puts=tuple((HELD, name, record_of()) for name in ("a", "b"))))
    table, committer, threads = held
    gone = threads.submit(table.delete, HELD, "a")
    wait_until(lambda: committer.waiting == 1)
    if is_asked_meanwhile:
        with pytest.raises(SequenceLimitError):
            soon(lambda: table.create(HELD, "c", record_of()))
    committer.gate.set()
    gone.result(PATIENCE_S)
    table.create(HELD, "c", record_of())
    with pytest.raises(SequenceLimitError):
        table.create(HELD, "d", record_of())
