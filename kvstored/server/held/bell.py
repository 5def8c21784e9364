"""The bell: the eventfd that tells a client to look at its boards."""

import contextlib
import os
import threading

FREE_INTERVAL_S = 0.005
_COUNTER_BYTES = 8


class Bell:
    """Wakes the client of one session. Thread-safe; ``ring`` never blocks.

    The flags of an eventfd belong to both sides: a client can make it blocking, fill its
    counter, and so hold the thread that writes to it. Therefore only a thread of the bell's own
    writes, and rings that come while it does become one. Raises OSError or RuntimeError
    when the system has no descriptor or no thread for it.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._rung = threading.Event()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._is_closing = False
        self._is_writing = False
        try:
            threading.Thread(target=self._run, name="kvstored-bell", daemon=True).start()
        except RuntimeError:
            os.close(self.descriptor)
            raise

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
                # A descriptor of its own, because the other one is closed meanwhile.
                descriptor = os.dup(self.descriptor)
                threading.Thread(target=self._free, args=(descriptor,), daemon=True).start()
        self._rung.set()

    def _run(self) -> None:
        while self._may_write():
            # A full counter wakes the client as well.
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(self.descriptor, 1)
        os.close(self.descriptor)
        self._is_over.set()

    def _free(self, descriptor: int) -> None:
        """Empties the counter until the write that it may hold has ended.

        Never waits for it to be filled, and goes on while the client fills it again.
        """
        while not self._is_over.wait(FREE_INTERVAL_S):
            with contextlib.suppress(BlockingIOError):
                os.preadv(descriptor, [bytearray(_COUNTER_BYTES)], -1, os.RWF_NOWAIT)
        os.close(descriptor)

    def _may_write(self) -> bool:
        with self._lock:
            self._is_writing = False
        self._rung.wait()
        self._rung.clear()
        with self._lock:
            self._is_writing = not self._is_closing
            return self._is_writing
