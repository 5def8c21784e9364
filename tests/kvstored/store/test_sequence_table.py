"""Sequences that are durable when a change returns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.store.committer import Commit
from kvstored.store.index import Index
from kvstored.store.sequence_table import SequenceStorageError, SequenceTable
from kvstored.store.sequences import (
    SequenceConflictError,
    SequenceExistsError,
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


def test_life_of_a_sequence(table: SequenceTable) -> None:
    table.create(NAMESPACE, "chat", LAYOUT.layout_id)
    assert table.append(NAMESPACE, "chat", [key(1), key(2), key(3)], 0).keys[0] == key(1)
    fork = table.fork(NAMESPACE, "chat", "branch", 2)
    assert fork.keys == (key(1), key(2))
    assert table.truncate_front(NAMESPACE, "chat", 1).dropped_chunks == 1
    assert table.truncate_back(NAMESPACE, "chat", 1).keys == (key(2),)
    assert table.get(NAMESPACE, "chat").keys == (key(2),)
    assert table.get(NAMESPACE, "branch") == fork
    assert table.list(NAMESPACE) == ["branch", "chat"]
    assert table.list(b"x" * 16) == []
    table.delete(NAMESPACE, "chat")
    assert table.list(NAMESPACE) == ["branch"]


def test_names_that_are_taken_or_unknown(table: SequenceTable) -> None:
    table.create(NAMESPACE, "chat", LAYOUT.layout_id)
    with pytest.raises(SequenceExistsError, match="chat"):
        table.create(NAMESPACE, "chat", LAYOUT.layout_id)
    with pytest.raises(SequenceExistsError, match="chat"):
        table.fork(NAMESPACE, "chat", "chat", 0)
    with pytest.raises(SequenceUnknownError, match="other"):
        table.delete(NAMESPACE, "other")
    with pytest.raises(SequenceConflictError, match="not the expected 5"):
        table.append(NAMESPACE, "chat", [key(1)], 5)


def test_change_that_is_not_stored_is_an_error(
    table: SequenceTable, committer: InlineCommitter
) -> None:
    committer.reason = Reason.INTERNAL
    with pytest.raises(SequenceStorageError, match="INTERNAL") as caught:
        table.create(NAMESPACE, "chat", LAYOUT.layout_id)
    assert caught.value.reason is Reason.INTERNAL
    assert table.list(NAMESPACE) == []
