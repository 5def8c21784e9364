"""One sequence in the daemon's memory while somebody uses it."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.tiers.chunks.frame import OpenFrame
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


@dataclass(frozen=True, slots=True, order=True)
class SequenceId:
    """A sequence of a namespace; an ephemeral one belongs to a session (0: it is none)."""

    namespace_id: bytes
    name: str
    session_id: int = 0

    @property
    def is_ephemeral(self) -> bool:
        """Whether it is never in the index and ends with its session."""
        return self.session_id != 0


@dataclass(slots=True, eq=False)
class OpenSequence:
    """What is known of a sequence; ``lock`` guards everything but ``users`` and ``owner``.

    ``state`` is None while the sequence is not looked up or does not exist. ``frame`` holds
    its open tail; without one, a tail is the flushed short chunk. ``pending`` are the
    chunks that are on their way to the devices. ``owner`` is the session that appended last.

    Invariant: an open frame exists only beside an owner, whose end returns it.
    """

    identity: SequenceId
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    owner: int = 0
    state: SequenceState | None = None
    layout: StateLayout | None = None
    frame: OpenFrame | None = None
    pending: dict[bytes, "Future[Reason]"] = field(default_factory=dict)

    @property
    def known(self) -> SequenceState:
        """The state of a sequence that was looked up."""
        assert self.state is not None
        return self.state

    def is_anothers(self, session_id: int) -> bool:
        """Whether the open tail has rows of another session that are not flushed.

        Only that one knows of which tokens: under anybody else's key they would be wrong bytes.
        """
        return self.frame is not None and self.owner != session_id and not self.known.is_flushed

    @property
    def is_idle(self) -> bool:
        """Whether the index knows everything that must be known of it."""
        return self.state is None or not (self.owner or self.pending)
