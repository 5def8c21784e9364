"""What can be done to a sequence: pure functions from one record to the next.

Counts are chunks. A sequence names its chunks and does not hold them: that one of
them was evicted is no concern here.
"""

from collections.abc import Sequence
from dataclasses import replace

from kvstored.format.sequence_record import SequenceRecord

SEQUENCE_CHUNKS_MAX = 65_536
"""Chunks of one sequence; its record is written as a whole by every change."""


class SequenceError(ValueError):
    """A sequence operation that cannot be done; the message says why."""


class SequenceExistsError(SequenceError):
    """The name is taken."""


class SequenceUnknownError(SequenceError):
    """There is no sequence of this name."""


class SequenceLimitError(SequenceError):
    """The namespace has as many sequences as it may have."""


class SequenceConflictError(SequenceError):
    """The sequence is not what the caller believes it to be; get it and try again."""


def create(layout_id: bytes) -> SequenceRecord:
    """An empty sequence of one layout (32 bytes)."""
    return SequenceRecord(layout_id=layout_id, keys=(), dropped_chunks=0)


def append(record: SequenceRecord, keys: Sequence[bytes], expected_chunks: int) -> SequenceRecord:
    """Adds ``keys`` (32 bytes each) at the back.

    Raises SequenceConflictError unless the sequence has ``expected_chunks`` chunks, so
    that two writers cannot interleave, and when it would become too long.
    """
    if len(record.keys) != expected_chunks:
        raise SequenceConflictError(
            f"the sequence has {len(record.keys)} chunks, not the expected {expected_chunks}"
        )
    if len(record.keys) + len(keys) > SEQUENCE_CHUNKS_MAX:
        raise SequenceConflictError(
            f"a sequence has at most {SEQUENCE_CHUNKS_MAX} chunks; truncate it or start another"
        )
    return replace(record, keys=(*record.keys, *keys))


def fork(record: SequenceRecord, keep_chunks: int) -> SequenceRecord:
    """A copy with the first ``keep_chunks`` chunks, or with all for 0.

    Raises SequenceConflictError when there are fewer.
    """
    _require(record, keep_chunks, "keep")
    return replace(record, keys=record.keys[:keep_chunks] if keep_chunks else record.keys)


def truncate_front(record: SequenceRecord, drop_chunks: int) -> SequenceRecord:
    """Drops the first ``drop_chunks`` chunks and remembers how many they were.

    Raises SequenceConflictError when there are fewer.
    """
    _require(record, drop_chunks, "drop")
    return replace(
        record,
        keys=record.keys[drop_chunks:],
        dropped_chunks=record.dropped_chunks + drop_chunks,
    )


def truncate_back(record: SequenceRecord, drop_chunks: int) -> SequenceRecord:
    """Drops the last ``drop_chunks`` chunks; raises SequenceConflictError when there are fewer."""
    _require(record, drop_chunks, "drop")
    return replace(record, keys=record.keys[: len(record.keys) - drop_chunks])


def _require(record: SequenceRecord, chunk_count: int, verb: str) -> None:
    if not 0 <= chunk_count <= len(record.keys):
        raise SequenceConflictError(
            f"cannot {verb} {chunk_count} chunks of a sequence that has {len(record.keys)}"
        )
