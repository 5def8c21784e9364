"""Which sequences each session appends to, and how many it may have."""

from dataclasses import dataclass, field

from kvstored.store.sequences.rules import SequenceLimitError
from kvstored.tiers.sequences.open_sequence import SequenceId

OPEN_SEQUENCES_PER_SESSION_MAX = 4096
OPEN_CHUNKS_PER_SESSION_MAX = 262_144
"""Chunks of these: both bound the daemon's memory for what one client names.

Their open tails are bounded by OPEN_SHARE_MAX besides.
"""


@dataclass(slots=True)
class _Owned:
    """Of one session: its sequences with their chunks, and the sum of these."""

    chunks: dict[SequenceId, int] = field(default_factory=dict)
    chunk_count: int = 0


class OwnedSequences:
    """Not thread-safe: ``OpenSequences`` serialises the calls."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Owned] = {}

    def __len__(self) -> int:
        """Sessions that have sequences."""
        return len(self._sessions)

    def of(self, session_id: int) -> tuple[SequenceId, ...]:
        """Those of a session."""
        owned = self._sessions.get(session_id)
        return tuple(owned.chunks) if owned else ()

    def check(self, session_id: int, identity: SequenceId, chunk_count: int) -> None:
        """Raises SequenceLimitError unless a session may have the sequence, with so many chunks."""
        owned = self._sessions.get(session_id) or _Owned()
        is_new = identity not in owned.chunks
        if is_new and len(owned.chunks) >= OPEN_SEQUENCES_PER_SESSION_MAX:
            raise SequenceLimitError(
                f"a session appends to at most {OPEN_SEQUENCES_PER_SESSION_MAX} sequences that "
                "are not flushed; flush some, delete the ephemeral ones that are done, or open "
                "another session"
            )
        others = owned.chunk_count - owned.chunks.get(identity, 0)
        if others + chunk_count > OPEN_CHUNKS_PER_SESSION_MAX:
            raise SequenceLimitError(
                f"the sequences that a session appends to, and has not flushed, have at most "
                f"{OPEN_CHUNKS_PER_SESSION_MAX} chunks; flush, delete or truncate some, or open "
                "another session"
            )

    def add(self, session_id: int, identity: SequenceId, chunk_count: int) -> None:
        """Makes a sequence that nobody has a session's own."""
        owned = self._sessions.setdefault(session_id, _Owned())
        owned.chunks[identity] = chunk_count
        owned.chunk_count += chunk_count

    def remove(self, session_id: int, identity: SequenceId) -> None:
        """It is not the session's any more, if it was."""
        owned = self._sessions.get(session_id)
        if owned is not None:
            owned.chunk_count -= owned.chunks.pop(identity, 0)
            if not owned.chunks:
                del self._sessions[session_id]
