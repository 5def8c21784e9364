"""What uses a session's arena: transfers while a call lasts, and reads that outlast theirs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvstored.server.errors import refuse
from kvstored.store.read.read_stream import ReadStream
from kvstored_contract.reasons import Reason

READS_PER_SESSION_MAX = 256
READ_CHUNKS_PER_SESSION_MAX = 131_072
"""Bounds the daemon's memory for what one client may name again and again."""


class ArenaUse:
    """Transfers and reads in flight. Thread-safe.

    ``cancel`` gives up a read. Invariants: once closed and idle it stays idle; a read that
    starts while it is closed is cancelled.
    """

    def __init__(self, cancel: Callable[[ReadStream], None]) -> None:
        self._cancel = cancel
        self._lock = threading.Lock()
        self._reads: dict[ReadStream, int] = {}
        """Reads in flight, with the chunks of each."""
        self._transfer_count = 0
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing may begin to use the arena any more."""
        return self._is_closed

    @contextmanager
    def transfer(self) -> Iterator[None]:
        """Keeps the arena while the body uses it; raises RefusedError when it is going."""
        with self._lock:
            self.check_open()
            self._transfer_count += 1
        try:
            yield
        finally:
            with self._lock:
                self._transfer_count -= 1

    def check_open(self) -> None:
        """Raises RefusedError when the session is being closed."""
        if self._is_closed:
            refuse(Reason.TOKEN_UNKNOWN, "the session is closed; connect again")

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
            is_late = self._is_closed
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

    def has_reads_to_give_up(self) -> bool:
        """Whether there are reads whose deadline is over, or which their client has cancelled."""
        self.forget_finished_reads()
        with self._lock:
            reads = tuple(self._reads)
        return any(stream.is_given_up() for stream in reads)

    def give_up_reads(self, give_up: Callable[[ReadStream], None]) -> None:
        """Has ``give_up`` settle what waits of these reads. Keeps none of them."""
        with self._lock:
            reads = tuple(self._reads)
        for stream in reads:
            if stream.is_given_up():
                give_up(stream)

    def close(self) -> None:
        """Refuses new transfers, and cancels the reads in flight."""
        with self._lock:
            self._is_closed = True
            reads = tuple(self._reads)
        for stream in reads:
            self._cancel(stream)

    def is_idle(self) -> bool:
        """Whether nothing uses the arena."""
        self.forget_finished_reads()
        with self._lock:
            return not self._reads and self._transfer_count == 0
