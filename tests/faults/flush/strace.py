"""System calls of a running daemon that fail when a test wants them to.

strace answers a call itself instead of letting the kernel run it: as if a device had
refused it. What is seen of the file afterwards tells what the daemon does then.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

FLUSHES = ("fdatasync", "fsync", "msync", "sync_file_range")
WRITES = ("pwrite64", "pwritev", "pwritev2", "writev", "write")
READS = ("preadv", "preadv2", "pread64", "readv", "read")

# "12 fdatasync(9) = 0", or "12 <... fdatasync resumed>) = 0" when it had to be split.
_COMPLETED = re.compile(r"\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed>).* = (-?\d+|\?)(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """Which calls on one file go wrong, and how.

    ``effect`` is strace's: ``error=EIO``, or ``retval=512`` for a transfer that ends early.
    ``when`` counts every named call by itself and on each thread by itself: ``3`` is the
    third alone, ``3+`` all from the third on.
    """

    path: Path
    calls: tuple[str, ...]
    effect: str
    when: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call on the file that has ended."""

    name: str
    result: int
    is_injected: bool

    @property
    def is_flush(self) -> bool:
        """Whether it was to bring bytes to media."""
        return self.name in FLUSHES


class Trace:
    """What was called on the file while faults were injected."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def calls(self) -> list[Call]:
        """In the order in which they ended."""
        matches = map(_COMPLETED.match, self.path.read_text().splitlines())
        return [
            Call(found[1], -1 if found[2] == "?" else int(found[2]), "(INJECTED)" in found[3])
            for found in matches
            if found
        ]

    @property
    def is_hit(self) -> bool:
        """Whether a call was made to fail."""
        return any(call.is_injected for call in self.calls())

    def after_hit(self) -> list[Call]:
        """What was called after the first call that was made to fail."""
        calls = self.calls()
        first = next(place for place, call in enumerate(calls) if call.is_injected)
        return calls[first + 1 :]


@contextlib.contextmanager
def injected(pid: int, injection: Injection, trace: Path) -> Iterator[Trace]:
    """Faults in all threads of a process; they end with the context. Skips where forbidden."""
    names = (*READS, *WRITES, *FLUSHES)
    command = ["strace", "-f", "-s", "0", "-o", str(trace), "-P", str(injection.path.resolve())]
    command += ["-e", f"trace={','.join(names)}"]
    command += [
        "-e",
        f"inject={','.join(injection.calls)}:{injection.effect}:when={injection.when}",
    ]
    with subprocess.Popen([*command, "-p", str(pid)], stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        try:
            said = tracer.stderr.readline()
            if "attached" not in said:
                pytest.skip(f"strace may not attach to processes here: {said.strip()}")
            # Threads are attached one after the other.
            wait_until(lambda: set(tracers(pid)) == {tracer.pid} or not _lives(pid))
            yield Trace(trace)
        finally:
            if tracer.poll() is None:
                tracer.send_signal(signal.SIGINT)
            tracer.communicate()


def tracers(pid: int) -> list[int]:
    """Process id of what traces each thread of a process; 0 for nothing."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            found.append(int(path.read_text().split("TracerPid:")[1].split()[0]))
    return found


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/task")  # noqa: PTH110 - a path of the kernel's
