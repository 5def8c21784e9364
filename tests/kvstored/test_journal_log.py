"""What the journal gets of each record."""

import io
import logging
import os
import socket
import struct
from pathlib import Path

import pytest

from kvstored.journal_log import SEND_TIMEOUT_S, JournalHandler, is_journal, message_of, priority_of
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def journal(tmp_path: Path) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "journal"))
    receiver.settimeout(PATIENCE_S)
    return receiver


def logger_of(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("kvstored.somewhere", logging.DEBUG)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    return logger


def test_a_record_has_its_fields(journal: socket.socket, tmp_path: Path) -> None:
    fallback = io.StringIO()
    logger_of(JournalHandler(logging.StreamHandler(fallback), tmp_path / "journal")).warning(
        "%d chunks", 3
    )
    fields = dict(line.split(b"=", 1) for line in journal.recv(10_000).splitlines())
    assert fields[b"MESSAGE"] == b"3 chunks"
    assert fields[b"PRIORITY"] == b"4"
    assert fields[b"LOGGER"] == b"kvstored.somewhere"
    assert fields[b"CODE_FILE"] == __file__.encode()
    assert fields[b"THREAD_NAME"] == b"MainThread"
    assert fallback.getvalue() == ""


def test_a_value_with_lines_has_its_length_before_it() -> None:
    text = "first\nsecond"
    assert message_of({"MESSAGE": text, "PRIORITY": "3"}) == (
        b"MESSAGE\n" + struct.pack("<Q", len(text)) + text.encode() + b"\nPRIORITY=3\n"
    )


def test_a_traceback_is_part_of_the_message(journal: socket.socket, tmp_path: Path) -> None:
    logger = logger_of(JournalHandler(logging.StreamHandler(io.StringIO()), tmp_path / "journal"))
    logger.error("it failed", exc_info=ValueError("bug"))
    data = journal.recv(10_000)
    assert data.startswith(b"MESSAGE\n")
    assert b"it failed\n" in data
    assert b"ValueError: bug" in data


def test_what_the_journal_does_not_take_is_written_as_a_line(tmp_path: Path) -> None:
    fallback = io.StringIO()
    logger_of(JournalHandler(logging.StreamHandler(fallback), tmp_path / "no-journal")).error(
        "lost"
    )
    assert fallback.getvalue() == "ERROR lost\n"


def test_a_journal_that_hung_held_up_every_record(journal: socket.socket, tmp_path: Path) -> None:
    """Bug: each record waited for it again, on the thread that serves everybody."""
    fallback = io.StringIO()
    handler = JournalHandler(logging.StreamHandler(fallback), tmp_path / "journal")
    logger = logger_of(handler)
    timeouts = [handler.timeout_s]
    while handler.timeout_s:
        logger.warning("full")
    timeouts.append(handler.timeout_s)
    assert fallback.getvalue() == "WARNING full\n"
    journal.recv(10_000)
    logger.warning("read again")
    timeouts.append(handler.timeout_s)
    assert timeouts == [SEND_TIMEOUT_S, 0.0, SEND_TIMEOUT_S]


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.CRITICAL, 2),
        (logging.ERROR, 3),
        (logging.WARNING, 4),
        (logging.INFO, 6),
        (logging.DEBUG, 7),
    ],
)
def test_priorities_are_those_of_syslog(level: int, priority: int) -> None:
    assert priority_of(level) == priority


def test_the_stream_is_known_by_its_number(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("wb") as stream:
        status = os.fstat(stream.fileno())
        name = f"{status.st_dev}:{status.st_ino}"
        assert is_journal(stream.fileno(), {"JOURNAL_STREAM": name})
        assert not is_journal(stream.fileno(), {"JOURNAL_STREAM": f"{name}1"})
        assert not is_journal(stream.fileno(), {})
        number = stream.fileno()
    assert not is_journal(number, {"JOURNAL_STREAM": name})
