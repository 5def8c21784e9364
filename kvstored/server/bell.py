"""The bell: the eventfd that tells a client to look at its boards."""

import contextlib
import os
import threading


class Bell:
    """Wakes the client of one session. Thread-safe; ``ring`` never blocks.

    The flags of an eventfd belong to both sides: a client can make it blocking, fill its
    counter, and so hold whoever writes to it. Therefore only a thread of the bell's own
    writes, and rings that come while it does become one.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._rung = threading.Event()
        self._lock = threading.Lock()
        self._is_closing = False
        self._is_writing = False
        threading.Thread(target=self._run, name="kvstored-bell", daemon=True).start()

    def ring(self) -> None:
        """Wakes the client soon; does nothing once the bell is closed."""
        self._rung.set()

    def close(self) -> None:
        """Ends the thread, which closes the descriptor. A second call does nothing."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            if self._is_writing:
                # The write may be held by a full counter: whatever is read frees it. A
                # descriptor of its own, because the other one is closed meanwhile.
                descriptor = os.dup(self.descriptor)
                threading.Thread(target=_drain, args=(descriptor,), daemon=True).start()
        self._rung.set()

    def _run(self) -> None:
        while self._may_write():
            # A full counter wakes the client as well.
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(self.descriptor, 1)
        os.close(self.descriptor)

    def _may_write(self) -> bool:
        with self._lock:
            self._is_writing = False
        self._rung.wait()
        self._rung.clear()
        with self._lock:
            self._is_writing = not self._is_closing
            return self._is_writing


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(descriptor)
    os.close(descriptor)
