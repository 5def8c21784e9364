"""One session: what a connected client holds, all of which its end returns."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvstored.format.identity import namespace_id
from kvstored.server.access import Grant
from kvstored.server.arena import Arena
from kvstored.server.bell import Bell
from kvstored.server.errors import refuse
from kvstored.server.leases import Lease, LeaseTable
from kvstored.server.thread_share import ThreadShare
from kvstored.store.read.read_stream import ReadStream
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

CALLS_PER_SESSION_MAX = 512
"""Calls in progress, those that wait for a thread or for the rest of their message included."""
LARGE_CALLS_PER_SESSION = 1
"""Look-ups of many chunks that are worked on at once, and as many puts of many: they compute, and
so keep the interpreter from others, which more of them would do more often."""
LEASES_PER_SESSION_MAX = 4096
LAYOUTS_PER_SESSION_MAX = 256
READS_PER_SESSION_MAX = 256
LEASED_CHUNKS_PER_SESSION_MAX = 262_144
READ_CHUNKS_PER_SESSION_MAX = 131_072
"""Both bound the daemon's memory for what one client may name again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionIdentity:
    """What never changes about a session. ``token`` authenticates its calls."""

    session_id: int
    token: str
    grant: Grant
    client_name: str


class Session:
    """A client's arena, bell, layouts, leases, calls and transfers in flight.

    Calls, layouts and leases belong to the event loop; ``transfer`` and ``add_read`` may be
    used from any thread. ``cancel`` gives up a read. Invariant: while a transfer is in
    flight the arena stays.
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
        self.bell = bell
        self.leases = LeaseTable()
        self.put_threads = ThreadShare()
        self.call_threads = ThreadShare()
        self.large_threads = ThreadShare(LARGE_CALLS_PER_SESSION)
        self.large_put_threads = ThreadShare(LARGE_CALLS_PER_SESSION)
        self._call_count = 0
        self._cancel = cancel
        self._layouts: dict[bytes, StateLayout] = {}
        self._lock = threading.Lock()
        self._reads: dict[ReadStream, int] = {}
        """Reads in flight, with the chunks of each."""
        self._transfer_count = 0
        self._closing = False

    def check_layout_limit(self, layout: StateLayout) -> None:
        """Raises RefusedError when the layout would be one too many."""
        is_new = layout.layout_id not in self._layouts
        if is_new and len(self._layouts) >= LAYOUTS_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"a session has at most {LAYOUTS_PER_SESSION_MAX} layouts; open another session",
            )

    def add_layout(self, layout: StateLayout) -> bytes:
        """Registers a layout and returns its id; raises RefusedError beyond the limit."""
        self.check_layout_limit(layout)
        self._layouts[layout.layout_id] = layout
        return layout.layout_id

    def layout(self, layout_id: bytes) -> StateLayout:
        """The registered layout of this id; raises RefusedError."""
        layout = self._layouts.get(layout_id)
        if layout is None:
            refuse(
                Reason.LAYOUT_UNKNOWN,
                f"layout {layout_id.hex() or '(empty)'} is not registered in this session; "
                "call RegisterLayout first",
            )
        return layout

    def is_open(self) -> bool:
        """Whether its client is there, as far as the daemon has heard."""
        return not self._closing

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
    def transfer(self) -> Iterator[None]:
        """Keeps the arena while the body uses it; raises RefusedError when it is going."""
        with self._lock:
            if self._closing:
                refuse(Reason.TOKEN_UNKNOWN, "the session is closed; connect again")
            self._transfer_count += 1
        try:
            yield
        finally:
            with self._lock:
                self._transfer_count -= 1

    def add_lease(self, lease: Lease) -> int:
        """Keeps a lease and returns its id; raises RefusedError when nobody would end it."""
        with self._lock:
            is_closing = self._closing
        if is_closing:
            refuse(Reason.TOKEN_UNKNOWN, "the session is closed; connect again")
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

    def check_read_limit(self, chunk_count: int = 1) -> None:
        """Raises RefusedError when no other read of so many chunks may start."""
        self.forget_finished_reads()
        with self._lock:
            read_count = len(self._reads)
            chunks_in_flight = sum(self._reads.values())
        if read_count >= READS_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"{READS_PER_SESSION_MAX} reads of this session are in flight; wait for one",
            )
        if read_count and chunks_in_flight + chunk_count > READ_CHUNKS_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"the reads of a session have at most {READ_CHUNKS_PER_SESSION_MAX} chunks in "
                "flight; wait for one",
            )

    def add_read(self, stream: ReadStream, chunk_count: int = 1) -> None:
        """Keeps the arena until ``stream`` is over. Call it inside ``transfer``."""
        with self._lock:
            self._reads[stream] = chunk_count
            is_late = self._closing
        if is_late:
            self._cancel(stream)

    @property
    def read_count(self) -> int:
        """Reads in flight."""
        self.forget_finished_reads()
        with self._lock:
            return len(self._reads)

    def forget_finished_reads(self) -> None:
        """Drops the reads that are over."""
        with self._lock:
            self._reads = {
                stream: count for stream, count in self._reads.items() if not stream.wait(0)
            }

    def begin_close(self) -> None:
        """Refuses new transfers and threads, and cancels the reads in flight."""
        for share in self._thread_shares:
            share.close()
        with self._lock:
            self._closing = True
            reads = tuple(self._reads)
        for stream in reads:
            self._cancel(stream)

    def is_idle(self) -> bool:
        """Whether nothing uses the arena or a thread. Once true after ``begin_close``, it stays."""
        self.forget_finished_reads()
        with self._lock:
            is_arena_used = bool(self._reads) or self._transfer_count > 0
        return not is_arena_used and all(share.is_idle for share in self._thread_shares)

    @property
    def _thread_shares(self) -> tuple[ThreadShare, ...]:
        return (self.put_threads, self.call_threads, self.large_threads, self.large_put_threads)

    def release(self) -> None:
        """Gives up arena and bell; the session must be idle."""
        self.arena.close()
        self.bell.close()
