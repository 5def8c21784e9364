"""Exceptions that end nowhere: in a thread, or written to the log instead of being raised."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Tracebacks(logging.Handler):
    """Keeps log records that carry a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@contextmanager
def no_stray_exceptions() -> Iterator[None]:
    """Raises AssertionError in the end if any thread of the store met an exception."""
    handler, logger = _Tracebacks(), logging.getLogger("kvstored")
    hook = threading.excepthook

    def died(arguments: threading.ExceptHookArgs) -> None:
        handler.found.append(f"{arguments.thread} died of {arguments.exc_value!r}")
        hook(arguments)

    logger.addHandler(handler)
    threading.excepthook = died
    try:
        yield
    finally:
        threading.excepthook = hook
        logger.removeHandler(handler)
    assert not handler.found, "\n".join(handler.found)
