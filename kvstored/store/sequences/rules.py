"""What can be done to a sequence: functions from one state to the next. Pure.

A sequence names its chunks and does not hold them: that one of them was evicted is no
concern here.
"""

from collections.abc import Sequence
from dataclasses import replace

from kvstored.store.sequences.sequence_state import SequenceState

SEQUENCE_CHUNKS_MAX = 65_536
"""Chunks of one sequence; its record is written as a whole by every change."""


class SequenceError(ValueError):
    """A sequence operation that cannot be done; the message says why."""


class SequenceExistsError(SequenceError):
    """The name is taken."""


class SequenceUnknownError(SequenceError):
    """There is no sequence of this name."""


class SequenceBusyError(SequenceError):
    """Somebody else was changing the sequence until the deadline; try again."""


class SequenceLimitError(SequenceError):
    """The namespace or the session has as many sequences as it may have."""


class SequenceConflictError(SequenceError):
    """The sequence is not what the caller believes it to be; get it and try again."""


def create(layout_id: bytes, chunk_tokens: int, keys: Sequence[bytes] = ()) -> SequenceState:
    """A sequence of one layout (32 bytes) that begins with stored chunks.

    Raises SequenceConflictError for too many keys (32 bytes each).
    """
    return append(SequenceState(layout_id=layout_id, chunk_tokens=chunk_tokens), keys, 0)


def append(state: SequenceState, keys: Sequence[bytes], expected_chunks: int) -> SequenceState:
    """Adds the keys (32 bytes each) of stored chunks at the back.

    Raises SequenceConflictError unless the sequence has ``expected_chunks`` chunks, so
    that two writers cannot interleave, when it has an open tail, and when it would become
    too long.
    """
    if len(state.keys) != expected_chunks:
        raise SequenceConflictError(
            f"the sequence has {len(state.keys)} chunks, not the expected {expected_chunks}"
        )
    # The flushed tail of a sequence of unknown layout is not counted as an open one.
    tail_tokens = state.tail_tokens or state.flushed_tail_tokens
    if tail_tokens:
        raise SequenceConflictError(
            f"the sequence ends with an open tail of {tail_tokens} tokens, behind which no "
            "chunk can stand; truncate it first"
        )
    check_chunk_count(len(state.keys) + len(keys))
    is_durable = state.durable_chunks == len(state.keys)
    added = replace(state, keys=(*state.keys, *keys), is_stopped=False)
    return replace(added, durable_chunks=len(added.keys)) if is_durable else added


def check_chunk_count(chunk_count: int) -> None:
    """Raises SequenceConflictError when a sequence would become too long."""
    if chunk_count > SEQUENCE_CHUNKS_MAX:
        raise SequenceConflictError(
            f"a sequence has at most {SEQUENCE_CHUNKS_MAX} chunks; truncate it or start another"
        )


def check_length(state: SequenceState, expected_tokens: int) -> None:
    """Raises SequenceConflictError unless the sequence has ``expected_tokens`` tokens."""
    if state.length_tokens != expected_tokens:
        raise SequenceConflictError(
            f"the sequence has {state.length_tokens} tokens, not the expected {expected_tokens}"
        )


def fork(state: SequenceState, keep_chunks: int) -> SequenceState:
    """A copy with the first ``keep_chunks`` chunks, or with all and the tail for 0.

    Raises SequenceConflictError when there are fewer.
    """
    _require(state, keep_chunks, "keep")
    return state.cut(keep_chunks) if keep_chunks else state


def truncate_front(state: SequenceState, drop_chunks: int) -> SequenceState:
    """Drops the first ``drop_chunks`` chunks and remembers how many they were.

    The tail stays. Raises SequenceConflictError when there are fewer.
    """
    _require(state, drop_chunks, "drop")
    return replace(
        state,
        keys=state.keys[drop_chunks:],
        durable_chunks=max(0, state.durable_chunks - drop_chunks),
        flushed=state.flushed if state.flushed_index >= drop_chunks else None,
        flushed_index=max(0, state.flushed_index - drop_chunks),
        dropped_chunks=state.dropped_chunks + drop_chunks,
    )


def truncate_back(state: SequenceState, drop_chunks: int) -> SequenceState:
    """Drops the tail and the last ``drop_chunks`` chunks; does nothing for 0.

    Raises SequenceConflictError when there are fewer.
    """
    _require(state, drop_chunks, "drop")
    if drop_chunks == 0:
        return state
    return replace(state.cut(len(state.keys) - drop_chunks), is_stopped=False)


def truncate_tokens(state: SequenceState, drop_tokens: int) -> SequenceState:
    """Drops the last ``drop_tokens`` tokens; a cut inside a chunk makes its head the tail.

    Raises SequenceConflictError when there are fewer.
    """
    if drop_tokens > state.length_tokens:
        raise SequenceConflictError(
            f"cannot drop {drop_tokens} tokens of a sequence that has {state.length_tokens}"
        )
    chunk_count, tail_tokens = divmod(state.length_tokens - drop_tokens, state.chunk_tokens)
    return replace(state.cut(chunk_count, tail_tokens), is_stopped=False)


def _require(state: SequenceState, chunk_count: int, verb: str) -> None:
    if not 0 <= chunk_count <= len(state.keys):
        raise SequenceConflictError(
            f"cannot {verb} {chunk_count} chunks of a sequence that has {len(state.keys)}"
        )
