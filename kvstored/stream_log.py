"""The log as lines on a stream, such as stderr.

Somebody may read the stream and stop: a pager, a full pipe, a journal that hangs. The daemon goes
on then. It leaves lines out, and says how many as soon as the stream takes something.
"""

import logging
import os
import select
import time

WRITE_TIMEOUT_S = 0.1
"""How long a thread may be held up by a stream that takes nothing."""


class StreamLog(logging.Handler):
    """Writes records to a descriptor, and waits ``WRITE_TIMEOUT_S`` once for one that is full.

    As long as it stays full nobody waits again. Records come one at a time, as ``logging.Handler``
    sees to. The last line before those that were left out can lack its end.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record."""
        try:
            text = self.format(record) + "\n"
            if self._left_out:
                text = f"\n{self._left_out} lines of the log were left out: nobody read it\n{text}"
            timeout_s = 0.0 if self._left_out else WRITE_TIMEOUT_S
            is_written = self._write(text.encode(errors="backslashreplace"), timeout_s)
            self._left_out = 0 if is_written else self._left_out + 1
        except Exception:
            self.handleError(record)

    def _write(self, data: bytes, timeout_s: float) -> bool:
        """Whether all of it was taken."""
        deadline_s = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        rest = memoryview(data)
        while rest and poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            # A pipe that can be written to takes as much as this at once.
            rest = rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]
        return not rest
