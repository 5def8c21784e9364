"""Lines of the log on streams that somebody reads, or nobody."""

import fcntl
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.stream_log import StreamLog
from kvstored_client import Client
from tests.support.daemon import DaemonProcess, listens
from tests.support.waiting import PATIENCE_S, wait_until

PIPE_BYTES = 64 * 1024


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The ends to read from, which never waits, and to write to."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def logger_of(descriptor: int) -> logging.Logger:
    logger = logging.Logger("kvstored.somewhere", logging.DEBUG)
    logger.addHandler(StreamLog(descriptor))
    return logger


def lines_of(reader: int) -> list[str]:
    return os.read(reader, 2 * PIPE_BYTES).decode().splitlines()


def test_records_are_lines_of_a_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        logger = logger_of(file.fileno())
        logger.warning("%d chunks", 3)
        logger.warning("a name that is no text: \udcff")
    assert (tmp_path / "log").read_text() == "3 chunks\na name that is no text: \\udcff\n"


def test_a_long_record_is_written_whole(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    logger_of(writer).warning("x" * 20_000)
    assert lines_of(reader) == ["x" * 20_000]


def test_a_log_that_nobody_read_stopped_the_daemon(pipe: tuple[int, int]) -> None:
    """Bug: a pager that was left open held up every thread that logged."""
    reader, writer = pipe
    logger = logger_of(writer)
    count = 100
    for number in range(count):
        logger.warning("%d %s", number, "x" * 1000)
    read = lines_of(reader)
    whole = [line for line in read if len(line) > 1000]
    assert 0 < len(whole) < count
    logger.warning("somebody reads again")
    _, said, line = lines_of(reader)
    found = re.match(r"(\d+) lines of the log were left out", said)
    assert found is not None
    assert int(found[1]) == count - len(whole)
    assert line == "somebody reads again"
    logger.warning("and goes on")
    assert lines_of(reader) == ["and goes on"]


def test_a_reader_that_is_gone_ends_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    reader, writer = os.pipe()
    os.close(reader)
    logger_of(writer).warning("nobody hears")
    os.close(writer)
    assert capsys.readouterr().err == ""


def test_a_daemon_whose_log_nobody_reads_serves_and_ends(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    _, writer = pipe
    os.write(writer, bytes(PIPE_BYTES))
    with DaemonProcess(tmp_path) as daemon:
        daemon.terminate()
        process = subprocess.Popen(daemon.command("run"), stderr=writer)
        try:
            wait_until(lambda: listens(daemon.socket_path))
            with Client(daemon.socket_path, arena_bytes=1024 * 1024, strict=True) as client:
                assert client.admin.stats().devices
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
