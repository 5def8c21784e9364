"""Sequences that are durable when a change returns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.format.sequence_record import SequenceRecord
from kvstored.store import sequence_table
from kvstored.store.committer import Commit
from kvstored.store.index import Index
from kvstored.store.sequence_table import SequenceStorageError, SequenceTable
from kvstored.store.sequences import (
    SequenceExistsError,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored_contract.reasons import Reason
from tests.support.stores import LAYOUT, MIB, NAMESPACE, key


class InlineCommitter:
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
