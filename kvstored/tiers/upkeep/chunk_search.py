"""Finds the chunks that an operator means."""

from itertools import islice

from kvstored.store.index.index import Index
from kvstored.store.sequences.rules import SequenceUnknownError


class ChunkSearch:
    """Looks into the index. Thread-safe; raises IndexFailure."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def of_sequence(self, namespace_id: bytes, name: str) -> list[bytes]:
        """Keys of the durable chunks of a sequence, in its order, the flushed tail last.

        Raises SequenceUnknownError.
        """
        record = self._index.sequence(namespace_id, name)
        if record is None:
            raise SequenceUnknownError(f"there is no sequence {name!r} in this namespace")
        return [*record.keys, *([record.tail.key] if record.tail else [])]

    def of_prefix(self, namespace_id: bytes, key_prefix: str, limit: int) -> list[bytes]:
        """Up to ``limit`` keys that begin with these hexadecimal digits, of stored chunks."""
        found = self._index.walks.records_by_prefix(key_prefix, namespace_id)
        return [chunk.key for chunk, _ in islice(found, limit)]
