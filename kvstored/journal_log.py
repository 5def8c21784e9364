"""The log in systemd's journal, with fields: severity, logger, place in the code, thread.

systemd passes the number of the stream that it reads from stderr (``JOURNAL_STREAM``). Where that
is this process's stderr, records go to the journal's own socket, so that
``journalctl --priority warning`` and ``journalctl LOGGER=kvstored.daemon`` find them.
"""

import logging
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

JOURNAL_SOCKET = Path("/run/systemd/journal/socket")
IDENTIFIER = "kvstored"
SEND_TIMEOUT_S = 0.1
"""How long a thread may be held up by a journal that takes nothing."""
_LENGTH = struct.Struct("<Q")
_PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
"""Least severity for each priority of syslog; below all of them it is 7."""


def is_journal(stream: int, environment: Mapping[str, str]) -> bool:
    """Whether what is written to the descriptor goes to the journal."""
    try:
        status = os.fstat(stream)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def message_of(fields: Mapping[str, str]) -> bytes:
    """Fields as the journal's socket takes them: a value with lines has its length before it."""
    parts = []
    for name, value in fields.items():
        data = value.encode(errors="replace")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + _LENGTH.pack(len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


class JournalHandler(logging.Handler):
    """Sends records to the journal; gives those that it does not take to ``fallback``.

    A journal that is too busy holds up one record, and the next ones only after it took one.
    """

    def __init__(self, fallback: logging.Handler, path: Path = JOURNAL_SOCKET) -> None:
        super().__init__()
        self._fallback = fallback
        self._path = os.fspath(path)
        self.timeout_s = SEND_TIMEOUT_S
        """How long the next record waits for the journal."""

    def setFormatter(self, formatter: logging.Formatter | None) -> None:  # noqa: N802 - logging's
        """What lines look like that the journal does not take."""
        self._fallback.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one record."""
        try:
            data = message_of(self._fields(record))
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(self.timeout_s)
                sender.sendto(data, self._path)
            self.timeout_s = SEND_TIMEOUT_S
        except OSError as error:
            # It is gone, or busy, or the record is too long for a datagram.
            if isinstance(error, TimeoutError | BlockingIOError):
                self.timeout_s = 0.0
            self._fallback.handle(record)
        except Exception:
            self.handleError(record)

    def _fields(self, record: logging.LogRecord) -> dict[str, str]:
        # Without a format of its own it is the sentence, and the traceback below it.
        return {
            "MESSAGE": self.format(record),
            "PRIORITY": str(priority_of(record.levelno)),
            "SYSLOG_IDENTIFIER": IDENTIFIER,
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName,
            "THREAD_NAME": record.threadName or "",
        }


def priority_of(level: int) -> int:
    """The priority of syslog for a level of logging."""
    return next((priority for least, priority in _PRIORITIES if level >= least), 7)
