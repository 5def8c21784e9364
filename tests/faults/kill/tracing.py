"""Threads of another process under strace: counting their system calls, killing at one of them."""

import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE_S, POLL_S

EFFECTIVE_CALLS = (
    "pwrite64,pwritev,pwritev2,writev,write,sendmsg,sendto,fdatasync,fsync,msync,ftruncate,"
    "fallocate,openat,rename,renameat,renameat2,unlink,unlinkat,mkdir,io_uring_enter"
)
"""Calls that change what others see; between two of them a kill makes no difference."""
_CALL = re.compile(r"(?:\[pid +)?(\d+)\]? +(\w+)\(")


EVERY_CALL = "all"
MAIN_THREAD = "main"
"""Name of the first thread of a process, whatever the kernel calls it."""
ANY_THREAD = "any"
"""Whichever thread is the first to make a call so often."""
ATTEMPTS = 5
"""strace looks once which threads there are; one that is made meanwhile may escape."""


class TracingError(Exception):
    """strace could not be attached."""


class AttachError(TracingError):
    """strace may not attach to a process here."""


@dataclass(frozen=True, slots=True, order=True)
class KillPoint:
    """The ``when``-th time that a thread of this name makes this call."""

    thread: str
    call: str
    when: int

    def __str__(self) -> str:
        return f"{self.call} {self.when} of {self.thread}"


@contextmanager
def recorded(pid: int, trace: Path, calls: str = EFFECTIVE_CALLS) -> Iterator[Counter[KillPoint]]:
    """Counts the calls of all threads during the body.

    The counter is filled when the body has ended: for each thread and call the
    ``KillPoint`` with ``when`` 0, and how often it was.
    """
    counts: Counter[KillPoint] = Counter()
    with traced(pid, "-f", "-e", f"trace={calls}", "-o", str(trace)) as names:
        names.update(thread_names(pid))
        yield counts
        with suppress(OSError):
            names.update(thread_names(pid))
    for line in trace.read_text().splitlines():
        match = _CALL.match(line)
        if match is not None:
            name = names.get(int(match[1]), "?")
            counts[KillPoint(name, match[2], 0)] += 1


@contextmanager
def killed_at(pid: int, point: KillPoint) -> Iterator[None]:
    """Kills the process when its thread enters the call for the ``when``-th time.

    A pool may have made no thread of this name this time; then nothing is killed.
    """
    rule = f"inject={point.call}:signal=SIGKILL:when={point.when}"
    is_any = point.thread == ANY_THREAD
    tid = pid if is_any else thread_of(pid, point.thread)
    if tid is None:
        yield
        return
    scope = ["-f"] if is_any else []
    with traced(tid, *scope, "-e", f"trace={point.call}", "-e", rule, "-o", "/dev/null"):
        yield


@contextmanager
def traced(tid: int, *options: str) -> Iterator[dict[int, str]]:
    """Attaches strace to a thread, or with ``-f`` to all of its process; detaches in the end.

    Yields an empty mapping for a caller that wants to keep the names of the threads.
    """
    for _ in range(ATTEMPTS):
        tracer = subprocess.Popen(
            ["strace", "-p", str(tid), *options], stderr=subprocess.PIPE, text=True
        )
        try:
            if _is_attached(tracer, tid, every_thread="-f" in options):
                yield {}
                return
        finally:
            if tracer.poll() is None:
                tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=PATIENCE_S)
    raise TracingError(f"strace did not attach to {tid}")


def _is_attached(tracer: "subprocess.Popen[str]", tid: int, *, every_thread: bool) -> bool:
    """Waits until the tracer has the thread, or all of them: it attaches one after the other.

    False when it has missed one that was made meanwhile. A thread that was attached first may
    meet its rule before that: the tracer ends then with what it has killed, of which nobody is
    the tracer any more.
    """
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if "attached" not in line:
        raise AttachError(f"strace cannot attach: {line.strip()}")
    deadline = time.monotonic() + PATIENCE_S / ATTEMPTS
    while time.monotonic() < deadline:
        tids = list(thread_names(tid)) if every_thread else [tid]
        try:
            if all(_tracer_of(each) == tracer.pid for each in tids):
                return True
        except OSError:
            if not Path(f"/proc/{tid}").exists():
                return True
        if tracer.poll() is not None:
            return True
        time.sleep(POLL_S)
    return False


def _tracer_of(tid: int) -> int:
    status = Path(f"/proc/{tid}/status").read_text()
    return int(status.split("TracerPid:")[1].split()[0])


def thread_names(pid: int) -> dict[int, str]:
    """Names of the threads of a process by their ids, as the kernel knows them."""
    names = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        try:
            names[int(path.name)] = (path / "comm").read_text().strip()
        except OSError:
            # It has ended meanwhile.
            continue
    return names | {pid: MAIN_THREAD}


def thread_of(pid: int, name: str) -> int | None:
    """The first thread of this name."""
    return min((tid for tid, found in thread_names(pid).items() if found == name), default=None)
