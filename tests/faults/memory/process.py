"""What the system says about another process: memory, threads, descriptors."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import POLL_S

KIB = 1024
POOL_THREADS = 32
"""Threads that pools of the daemon and of gRPC may have started meanwhile; then they stay."""
SETTLED_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """One look at a process. Resident bytes are all of its pages, shared ones included.

    Of these ``anonymous_bytes`` are heaps and stacks, and ``file_bytes`` pages of mapped files: the
    index and libraries. The rest is shared memory: DRAM tier, landing buffers, arenas.
    ``targets`` names what each of its descriptors leads to, so that one too many has a name.
    """

    resident_bytes: int
    anonymous_bytes: int
    file_bytes: int
    threads: int
    targets: tuple[str, ...]

    @property
    def descriptors(self) -> int:
        """How many descriptors are open."""
        return len(self.targets)

    def is_back_at(self, before: "ProcessState") -> bool:
        """Whether nothing was left behind since ``before``, as far as it can be counted."""
        return (
            self.descriptors <= before.descriptors and self.threads <= before.threads + POOL_THREADS
        )


def process_state(pid: int) -> ProcessState:
    """The process as it is now; raises FileNotFoundError when it has ended."""
    folder = Path(f"/proc/{pid}")
    lines = (folder / "status").read_text().splitlines()
    fields = dict(line.split(":", maxsplit=1) for line in lines if ":" in line)

    def field_bytes(name: str) -> int:
        return int(fields[name].split()[0]) * KIB

    return ProcessState(
        resident_bytes=field_bytes("VmRSS"),
        anonymous_bytes=field_bytes("RssAnon"),
        file_bytes=field_bytes("RssFile"),
        threads=int(fields["Threads"]),
        targets=tuple(sorted(_targets(folder / "fd"))),
    )


def _targets(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        # One that was closed meanwhile is none.
        with contextlib.suppress(FileNotFoundError):
            yield str(path.readlink())


def processor_s(pid: int) -> float:
    """Seconds of a processor that all threads of a process have had; raises as above."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_ticks, system_ticks = map(int, fields[11:13])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


def settled_state(pid: int) -> ProcessState:
    """The process when it has opened and closed nothing for SETTLED_S."""
    state = process_state(pid)
    since = time.monotonic()
    while time.monotonic() - since < SETTLED_S:
        time.sleep(POLL_S)
        now = process_state(pid)
        if now.descriptors != state.descriptors:
            state, since = now, time.monotonic()
    return process_state(pid)


def state_when_back(pid: int, before: ProcessState, *, timeout_s: float) -> ProcessState:
    """Waits until the process is back at ``before``; its last state when the time is up.

    A daemon hears of the ends of its clients a little later, so this polls.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        state = process_state(pid)
        if state.is_back_at(before) or time.monotonic() > deadline:
            return state
        time.sleep(POLL_S)
