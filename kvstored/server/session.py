"""One session: what a connected client holds, all of which its end returns."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from kvstored.format.identity import namespace_id
from kvstored.server.access import Grant
from kvstored.server.errors import refuse
from kvstored.server.held.arena import Arena
from kvstored.server.held.arena_use import ArenaUse
from kvstored.server.held.bell import Bell
from kvstored.server.held.layout_table import LayoutTable
from kvstored.server.held.leases import Lease, LeaseTable
from kvstored.server.thread_share import ThreadShare
from kvstored.store.read.read_stream import ReadStream
from kvstored_contract.reasons import Reason

CALLS_PER_SESSION_MAX = 512
MESSAGE_BYTES_PER_SESSION_MAX = 64 * 1024 * 1024
"""Messages of calls in progress: eight of the longest."""
"""Calls in progress, those that wait for a thread or for the rest of their message included."""
LARGE_CALLS_PER_SESSION = 1
"""Look-ups of many chunks that are worked on at once, and as many puts of many: they compute, and
so keep the interpreter from others, which more of them would do more often."""
DECODINGS_PER_SESSION = 1
"""Large messages that are decoded at once."""
LEASES_PER_SESSION_MAX = 4096
LEASED_CHUNKS_PER_SESSION_MAX = 262_144
"""Bounds the daemon's memory for what one client may name again and again."""


class SessionKind(Enum):
    """Whose it is: a client's, an operator's, or that of all callers over TCP of a namespace."""

    CLIENT = "client"
    OPERATOR = "operator"
    """Some places are kept for these."""
    REMOTE = "remote"
    """It ends with the daemon, so nothing may be kept for it that waits for its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionIdentity:
    """What never changes about a session. ``token`` authenticates its calls."""

    session_id: int
    token: str
    grant: Grant
    client_name: str
    kind: SessionKind = SessionKind.CLIENT


class Session:
    """A client's arena and its use, bell, layouts, leases, threads and calls in progress.

    Belongs to the event loop; ``arena_use`` may be used from any thread. ``cancel`` gives up a
    read. Invariant: the arena is released after its use has ended.
    """

    def __init__(
        self,
        identity: SessionIdentity,
        *,
        arena: Arena,
        bell: Bell,
        cancel: Callable[[ReadStream], None],
    ) -> None:
        self.identity = identity
        self.namespace_id = namespace_id(identity.grant.namespace)
        self.arena = arena
        self.arena_use = ArenaUse(cancel)
        self.bell = bell
        self.layouts = LayoutTable()
        self.leases = LeaseTable()
        self.put_threads = ThreadShare()
        self.call_threads = ThreadShare()
        self.large_threads = ThreadShare(LARGE_CALLS_PER_SESSION)
        self.large_put_threads = ThreadShare(LARGE_CALLS_PER_SESSION)
        self.decoding_threads = ThreadShare(DECODINGS_PER_SESSION)
        self.decoding = asyncio.Lock()
        """Whose turn it is to decode a message; calls get it in the order in which they come."""
        self._call_count = 0
        self._message_bytes = 0

    def is_open(self) -> bool:
        """Whether its client is there, as far as the daemon has heard."""
        return not self.arena_use.is_closed

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call while the body serves it; raises RefusedError beyond the limit."""
        if self._call_count >= CALLS_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"{CALLS_PER_SESSION_MAX} calls of this session are in progress; wait for one",
            )
        self._call_count += 1
        try:
            yield
        finally:
            self._call_count -= 1

    @contextmanager
    def message(self, byte_count: int) -> Iterator[None]:
        """Counts the message of a call while the body serves it; raises RefusedError.

        Calls wait for threads with their messages in memory, which nobody has set aside.
        """
        if self._message_bytes + byte_count > MESSAGE_BYTES_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"the calls of this session that are in progress have messages of "
                f"{self._message_bytes} bytes, and with this one more than "
                f"{MESSAGE_BYTES_PER_SESSION_MAX}; wait for one",
            )
        self._message_bytes += byte_count
        try:
            yield
        finally:
            self._message_bytes -= byte_count

    def add_lease(self, lease: Lease) -> int:
        """Keeps a lease and returns its id; raises RefusedError when nobody would end it."""
        self.arena_use.check_open()
        if len(self.leases) >= LEASES_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"a session has at most {LEASES_PER_SESSION_MAX} leases; release some",
            )
        if self.leases.chunk_count + len(lease.chunks) > LEASED_CHUNKS_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"the leases of a session name at most {LEASED_CHUNKS_PER_SESSION_MAX} chunks; "
                "release some",
            )
        return self.leases.add(lease)

    def begin_close(self) -> None:
        """Refuses new transfers and threads, and cancels the reads in flight."""
        for share in self._thread_shares:
            share.close()
        self.arena_use.close()

    def is_idle(self) -> bool:
        """Whether nothing uses the arena or a thread. Once true after ``begin_close``, it stays."""
        return self.arena_use.is_idle() and all(share.is_idle for share in self._thread_shares)

    @property
    def _thread_shares(self) -> tuple[ThreadShare, ...]:
        return (
            self.put_threads,
            self.call_threads,
            self.large_threads,
            self.large_put_threads,
            self.decoding_threads,
        )

    def release(self) -> None:
        """Gives up arena and bell; the session must be idle."""
        self.arena.close()
        self.bell.close()
