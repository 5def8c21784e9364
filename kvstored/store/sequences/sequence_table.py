"""The records of sequences in the index: each change is durable when it returns."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from kvstored.format.identity import KEY_BYTES
from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.sequences.rules import (
    SequenceExistsError,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored.store.write.committer import Commit, Committer
from kvstored_contract.reasons import Reason

SEQUENCES_PER_NAMESPACE_MAX = 32_768
"""The longest names of so many fit into one answer of ``List``."""
PAGE_BYTES = 4096
"""What a record may take of the index besides its keys."""


class SequenceStorageError(RuntimeError):
    """What a sequence needs could not be stored; ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"the change of the sequence could not be stored: {reason.name}")
        self.reason = reason


class SequenceTable:
    """Named sequences by namespace. Thread-safe; every change blocks until it is durable.

    The caller serialises the changes of one sequence; those of different ones share commits.
    When sequences have taken their share of the index, those that grow are refused with
    STORE_FULL: deletions need the rest.
    Raises SequenceUnknownError, SequenceExistsError, SequenceLimitError and
    SequenceStorageError.
    """

    def __init__(self, *, index: Index, committer: Committer) -> None:
        self._index = index
        self._committer = committer
        self._lock = threading.Lock()
        """Never held over a commit: changes of others join it."""
        self._counts: dict[bytes, int] = {}
        """Sequences by namespace, those on their way included, of the namespaces that have made
        or deleted one since the start."""
        self._room_lock = threading.Lock()
        self._storing_bytes = 0
        """Of the records on their way, which the index does not count yet."""

    def get(self, namespace_id: bytes, name: str) -> SequenceRecord:
        """The sequence as the index has it."""
        record = self._index.sequence(namespace_id, name)
        if record is None:
            raise SequenceUnknownError(f"there is no sequence {name!r}")
        return record

    def list(self, namespace_id: bytes) -> list[str]:
        """Names of all sequences of a namespace."""
        return self._index.walks.sequences(namespace_id)

    def refuse_existing(self, namespace_id: bytes, name: str) -> None:
        """Raises SequenceExistsError when the index has a sequence of this name."""
        if self._index.sequence(namespace_id, name) is not None:
            raise SequenceExistsError(f"there is a sequence {name!r} already")

    def create(self, namespace_id: bytes, name: str, record: SequenceRecord) -> None:
        """Stores a sequence under a new name."""
        self.refuse_existing(namespace_id, name)
        with self._lock:
            if self._count(namespace_id) >= SEQUENCES_PER_NAMESPACE_MAX:
                raise SequenceLimitError(
                    f"a namespace has at most {SEQUENCES_PER_NAMESPACE_MAX} sequences; delete some"
                )
            self._counts[namespace_id] += 1
        try:
            self.store([(namespace_id, name, record)])
        except BaseException:
            self._one_less(namespace_id)
            raise

    def store(self, records: Sequence[tuple[bytes, str, SequenceRecord]]) -> None:
        """Replaces the records of sequences that exist, all in one commit."""
        with self._room_for(records):
            self._commit(IndexChange(sequence_puts=tuple(records)))

    def delete(self, namespace_id: bytes, name: str) -> None:
        """Forgets a sequence; its chunks stay until they are evicted."""
        self.get(namespace_id, name)
        with self._lock:
            # Now: after the commit nobody could tell whether the index counts it.
            self._count(namespace_id)
        self._commit(IndexChange(sequence_deletes=((namespace_id, name),)))
        self._one_less(namespace_id)

    def _count(self, namespace_id: bytes) -> int:
        """Sequences of a namespace; the lock is held. Every change asks before its commit."""
        if namespace_id not in self._counts:
            self._counts[namespace_id] = len(self._index.walks.sequences(namespace_id))
        return self._counts[namespace_id]

    def _one_less(self, namespace_id: bytes) -> None:
        with self._lock:
            self._counts[namespace_id] -= 1

    @contextmanager
    def _room_for(self, records: Sequence[tuple[bytes, str, SequenceRecord]]) -> Iterator[None]:
        """Keeps room for records while the body stores them, unless they need none."""
        byte_count = sum(KEY_BYTES * len(record.keys) + PAGE_BYTES for *_, record in records)
        with self._room_lock:
            left_bytes = self._index.usage.left_others_bytes - self._storing_bytes
            if left_bytes < byte_count and any(self._grows(*record) for record in records):
                raise SequenceStorageError(Reason.STORE_FULL)
            self._storing_bytes += byte_count
        try:
            yield
        finally:
            with self._room_lock:
                self._storing_bytes -= byte_count

    def _grows(self, namespace_id: bytes, name: str, record: SequenceRecord) -> bool:
        old = self._index.sequence(namespace_id, name)
        return old is None or len(record.keys) > len(old.keys)

    def _commit(self, change: IndexChange) -> None:
        outcome: Future[Reason] = Future()
        self._committer.submit(Commit(change=change, done=outcome.set_result))
        if (reason := outcome.result()) is not Reason.UNSPECIFIED:
            raise SequenceStorageError(reason)
