"""The sequences of the store: each change is durable when it returns."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from kvstored.format.sequence_record import SequenceRecord
from kvstored.store import sequences
from kvstored.store.committer import Commit, Committer
from kvstored.store.index import Index, IndexChange
from kvstored.store.sequences import (
    SequenceExistsError,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored_contract.reasons import Reason

SEQUENCES_PER_NAMESPACE_MAX = 32_768
"""The longest names of so many fit into one answer of ``List``."""


class SequenceStorageError(RuntimeError):
    """The index did not take a change; ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"the change of the sequence could not be stored: {reason.name}")
        self.reason = reason


class SequenceTable:
    """Named sequences by namespace. Thread-safe; every change blocks until it is durable.

    Changes are serialised, so that each starts from the durable state of the one
    before. Raises SequenceUnknownError, SequenceExistsError, SequenceConflictError,
    SequenceLimitError and SequenceStorageError.
    """

    def __init__(self, *, index: Index, committer: Committer) -> None:
        self._index = index
        self._committer = committer
        self._lock = threading.Lock()
        self._counts: dict[bytes, int] = {}
        """Sequences by namespace, of those namespaces that have made one since the start."""

    def get(self, namespace_id: bytes, name: str) -> SequenceRecord:
        """The sequence as it is now."""
        record = self._index.sequence(namespace_id, name)
        if record is None:
            raise SequenceUnknownError(f"there is no sequence {name!r}")
        return record

    def list(self, namespace_id: bytes) -> list[str]:
        """Names of all sequences of a namespace."""
        return self._index.sequences(namespace_id)

    def create(self, namespace_id: bytes, name: str, layout_id: bytes) -> SequenceRecord:
        """Makes an empty sequence."""
        with self._lock:
            self._refuse_new(namespace_id, name)
            return self._store_new(namespace_id, name, sequences.create(layout_id))

    def append(
        self, namespace_id: bytes, name: str, keys: Sequence[bytes], expected_chunks: int
    ) -> SequenceRecord:
        """Adds chunks at the back of a sequence of the expected length."""
        return self._change(
            namespace_id, name, lambda record: sequences.append(record, keys, expected_chunks)
        )

    def fork(
        self, namespace_id: bytes, name: str, new_name: str, keep_chunks: int
    ) -> SequenceRecord:
        """Copies a sequence under a new name, with its first chunks or (0) with all."""
        with self._lock:
            self._refuse_new(namespace_id, new_name)
            fork = sequences.fork(self.get(namespace_id, name), keep_chunks)
            return self._store_new(namespace_id, new_name, fork)

    def truncate_front(self, namespace_id: bytes, name: str, drop_chunks: int) -> SequenceRecord:
        """Drops chunks from the front."""
        return self._change(
            namespace_id, name, lambda record: sequences.truncate_front(record, drop_chunks)
        )

    def truncate_back(self, namespace_id: bytes, name: str, drop_chunks: int) -> SequenceRecord:
        """Drops chunks from the back."""
        return self._change(
            namespace_id, name, lambda record: sequences.truncate_back(record, drop_chunks)
        )

    def delete(self, namespace_id: bytes, name: str) -> None:
        """Forgets a sequence; its chunks stay until they are evicted."""
        with self._lock:
            self.get(namespace_id, name)
            self._commit(IndexChange(sequence_deletes=((namespace_id, name),)))
            if namespace_id in self._counts:
                self._counts[namespace_id] -= 1

    def _change(
        self, namespace_id: bytes, name: str, change: Callable[[SequenceRecord], SequenceRecord]
    ) -> SequenceRecord:
        with self._lock:
            return self._store(namespace_id, name, change(self.get(namespace_id, name)))

    def _refuse_new(self, namespace_id: bytes, name: str) -> None:
        if self._index.sequence(namespace_id, name) is not None:
            raise SequenceExistsError(f"there is a sequence {name!r} already")
        if namespace_id not in self._counts:
            self._counts[namespace_id] = len(self._index.sequences(namespace_id))
        if self._counts[namespace_id] >= SEQUENCES_PER_NAMESPACE_MAX:
            raise SequenceLimitError(
                f"a namespace has at most {SEQUENCES_PER_NAMESPACE_MAX} sequences; delete some"
            )

    def _store_new(self, namespace_id: bytes, name: str, record: SequenceRecord) -> SequenceRecord:
        self._store(namespace_id, name, record)
        self._counts[namespace_id] += 1
        return record

    def _store(self, namespace_id: bytes, name: str, record: SequenceRecord) -> SequenceRecord:
        self._commit(IndexChange(sequence_puts=((namespace_id, name, record),)))
        return record

    def _commit(self, change: IndexChange) -> None:
        outcome: Future[Reason] = Future()
        self._committer.submit(Commit(change=change, done=outcome.set_result))
        if (reason := outcome.result()) is not Reason.UNSPECIFIED:
            raise SequenceStorageError(reason)
