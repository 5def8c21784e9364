"""A daemon that is killed and started again many times, most starts by forking."""

import contextlib
import os
import time
from pathlib import Path

from kvstored_client import Client
from tests.faults.kill.conversations import Conversations
from tests.faults.kill.ledger import Ledger, ViolationError
from tests.faults.kill.payload import ARENA_BYTES, MIB, fetch
from tests.support.daemon import DaemonProcess, Overrides, listens
from tests.support.template import DAEMON, Template
from tests.support.waiting import PATIENCE_S

READY_WITHIN_S = 2.0
"""The promise: after a kill the daemon accepts clients again in this time."""
SIGNS_OF_DAMAGE = ("suspected_chunks", "quarantined_chunks", "device_errors")
"""Counters that stay 0 whenever a daemon is killed: what is indexed is whole."""
_POLL_S = 0.002


class KillableDaemon(DaemonProcess):
    """A formatted store and the daemon on it; nothing runs before ``spawn``.

    ``overrides`` come on top of small devices with small slabs. ``ready_s_max`` is the
    longest time that a start has taken from its beginning until the socket accepted, and
    ``undisturbed_ready_s`` what each has taken without waits for a CPU that others used.
    """

    def __init__(
        self, folder: Path, template: Template, *, slab_count: int, overrides: Overrides
    ) -> None:
        sections: Overrides = {
            "store": {
                "device_bytes": MIB + slab_count * overrides["store"]["slab_bytes"] + 4096,
                "index_map_bytes": 32 * MIB,
            },
            "dram": {"capacity_bytes": 4 * overrides["store"]["slab_bytes"]},
        }
        for section, values in overrides.items():
            sections.setdefault(section, {}).update(values)
        super().__init__(folder, overrides=sections, from_command=True)
        self._template = template
        self._spawned_at = 0.0
        self.go_path = folder / "go"
        os.mkfifo(self.go_path)
        # Open for both, so that neither opening nor writing ever waits for a reader.
        self._go = os.open(self.go_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.starts = 0
        self.slow_starts = 0
        self.ready_s_max = 0.0
        self.undisturbed_ready_s: list[float] = []

    def spawn(self, *, held: bool = False) -> None:
        """Forks the daemon and returns at once; a ``held`` one waits for ``release``."""
        assert self.process is None, "the daemon runs already"
        self._spawned_at = time.monotonic()
        go = self.hold() if held else ""
        self.process = self._template.fork(
            DAEMON, self.log_path, config=str(self.config_path), go=go
        )

    def hold(self) -> str:
        """The pipe at which the next process waits for ``release``."""
        with contextlib.suppress(BlockingIOError):
            # Whoever was held before was killed before it was released.
            os.read(self._go, 1)
        return str(self.go_path)

    def release(self) -> None:
        """Lets the held process go."""
        self._spawned_at = time.monotonic()
        os.write(self._go, b"g")

    def close(self) -> None:
        """Kills the daemon and removes its sockets; its folder stays."""
        super().close()
        os.close(self._go)

    def listens_before_it_dies(self) -> bool:
        """Waits until the daemon accepts clients, or is dead: then False."""
        deadline = time.monotonic() + PATIENCE_S
        while not listens(self.socket_path):
            if self.process is None or self.process.poll() is not None:
                self.process = None
                return False
            assert time.monotonic() < deadline, f"the daemon does not listen:\n{self.log}"
            time.sleep(_POLL_S)
        return True

    def until_ready(self, *, is_plain: bool = False) -> None:
        """Waits until the daemon accepts and takes the time; its death is a ViolationError."""
        if not self.listens_before_it_dies():
            raise ViolationError(f"the daemon ended:\n{self.log[-4000:]}")
        ready_s = time.monotonic() - self._spawned_at
        undisturbed_s = undisturbed(ready_s, self.pid, has_children=is_plain)
        self.ready_s_max = max(self.ready_s_max, ready_s)
        self.undisturbed_ready_s.append(undisturbed_s)
        self.starts += 1
        self.slow_starts += undisturbed_s > READY_WITHIN_S

    def start_plainly(self) -> None:
        """Starts the daemon as a user does, and takes the time."""
        self._spawned_at = time.monotonic()
        self.start()
        self.until_ready(is_plain=True)

    def ended_by(self) -> int | None:
        """The exit status of a daemon that has ended, as ``subprocess`` has it."""
        if self.process is None:
            return None
        status = self.process.poll()
        if status is not None:
            self.process = None
        return status

    def verify(self, ledger: Ledger, conversations: Conversations | None = None) -> None:
        """Reads all chunks, those acked longest ago first, then the rows of sequences, and judges.

        Nobody else may write.
        """
        with self.client() as client:
            for number, content in fetch(client, ledger.numbers).items():
                ledger.seen(number, content, settles=True)
            if conversations is not None:
                conversations.verify(client)
            counters = client.admin.stats().counters
        harm = {name: counters[name] for name in SIGNS_OF_DAMAGE if name in counters}
        if harm:
            raise ViolationError(f"a kill is no damage, but the daemon counts {harm}")

    def client(self) -> Client:
        """A client that raises where a call fails, and does not connect twice."""
        return Client(
            self.socket_path, arena_bytes=ARENA_BYTES, reconnect_interval_s=PATIENCE_S, strict=True
        )

    def check(self) -> None:
        """``kvstored check`` on the dead store; raises ViolationError when it finds something."""
        result = self.run_verb("check", "--json")
        if result.returncode != 0:
            raise ViolationError(f"check: {result.stdout[-4000:]}{result.stderr[-2000:]}")


def cpu_wait_s(pid: int) -> float:
    """Seconds that the first thread of a process has waited for a CPU; 0 where nobody counts."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        # The kernel does not count it.
        return 0.0


def undisturbed(elapsed_s: float, pid: int, *, has_children: bool) -> float:
    """How long a start would have taken had it never waited for a CPU that others used.

    The kernel tells that of the first thread. Where it waits for children of its own, which
    wait for a CPU as well, the same part of all the time is taken off.
    """
    try:
        cpu_ns, waited_ns, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
    except OSError:
        # The kernel does not count it.
        return elapsed_s
    if has_children:
        return elapsed_s * cpu_ns / max(cpu_ns + waited_ns, 1)
    return elapsed_s - waited_ns / 1e9
