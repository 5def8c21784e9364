"""A limit of the system on the daemon's memory: it starts and serves, or refuses; it never dies.

Fails when ``Arena`` does not ask its control group for room (seen: the kernel kills the daemon),
when ``SessionTable.open`` does not catch what lacking memory raises (seen: the client is cut off
without a word), and when a ``Bell`` without a thread keeps its eventfd (seen: it stays open).
"""

import asyncio
import os
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvstored.server.access import Grant
from kvstored.server.errors import RefusedError
from kvstored.server.session_table import SessionLimits
from kvstored_client import Client, SessionRefusedError
from kvstored_contract.limits import HUGE_PAGE_BYTES
from kvstored_contract.reasons import Reason
from tests.faults.clients.witness import LAYOUT, Witness
from tests.kvstored.server.session_tables import session_table
from tests.support.daemon import MIB, DaemonProcess
from tests.support.descriptors import open_descriptors
from tests.support.sharing import HUGE_PAGES
from tests.support.waiting import until, wait_until

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
MARGIN_BYTES = 160 * MIB
"""What the interpreter, the libraries and landing buffers of the test's daemon take."""
ATTEMPTS = 3
ARENA_BYTES = 2048 * MIB
HUGE_PAGE_POOL = (
    Path("/proc/sys/vm/nr_hugepages"),
    Path("/proc/sys/vm/nr_overcommit_hugepages"),
)
"""Numbers of pages that lie outside of the limits of control groups."""


def beyond_huge_pages() -> int:
    """More than a limit leaves room for, and more than lies on the system's huge pages."""
    return ARENA_BYTES + HUGE_PAGE_BYTES * sum(int(pool.read_text()) for pool in HUGE_PAGE_POOL)


def refused_arena(daemon: DaemonProcess, byte_count: int) -> SessionRefusedError:
    """Asks for an arena that is larger than the limit leaves room for."""
    with (
        Client(daemon.socket_path, arena_bytes=byte_count, strict=True) as client,
        pytest.raises(SessionRefusedError) as info,
    ):
        client.match(LAYOUT, [b"k" * 32])
    return info.value


def check_refused(daemon: DaemonProcess, byte_count: int = ARENA_BYTES) -> None:
    """The session is refused with its reason; the daemon lives and serves smaller ones."""
    with Witness(daemon.socket_path):
        error = refused_arena(daemon, byte_count)
    assert error.reason is Reason.LIMIT_EXCEEDED
    assert "memory" in str(error), error
    assert "ask for less" in str(error), error
    assert daemon.process is not None
    assert daemon.process.poll() is None, daemon.log
    with Witness(daemon.socket_path):
        pass
    assert "Traceback" not in daemon.log


def test_an_address_space_limit(daemon: DaemonProcess) -> None:
    """Address space as the daemon has it and a little more: a small arena fits, a large not."""
    used_bytes = int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[0]) * 4096
    limit_bytes = used_bytes + ARENA_BYTES // 2  # each of the first threads takes 64 MiB of it
    resource.prlimit(daemon.pid, resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    check_refused(daemon)


class ConfinedDaemon(DaemonProcess):
    """A daemon that starts inside a control group of its own, as one that is forked cannot."""

    def __init__(self, folder: Path, group: Path) -> None:
        super().__init__(
            folder,
            from_command=True,
            overrides={
                "server": {
                    "arena_bytes_max": beyond_huge_pages(),
                    "arenas_bytes_max": 2 * beyond_huge_pages(),
                }
            },
        )
        self.group = group

    def is_confined(self) -> bool:
        """Whether it still is in its group: a manager of processes may take it out."""
        return str(self.pid) in (self.group / "cgroup.procs").read_text().split()

    def group_state(self) -> str:
        """What the kernel says of the group and of where the daemon is."""
        files = [*self.group.glob("memory.*limit*"), *self.group.glob("memory.*usage_in_bytes")]
        files += [*self.group.glob("memory.max"), *self.group.glob("memory.current")]
        said = [f"{path.name} {path.read_text().strip()}" for path in files if path.is_file()]
        return "\n".join([*said, Path(f"/proc/{self.pid}/cgroup").read_text(), self.log])

    def command(self, *arguments: str) -> list[str]:
        command = super().command(*arguments)
        if arguments[0] != "run":
            return command
        enter = f'echo $$ > "{self.group}/cgroup.procs" && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]


def parent_group() -> tuple[Path, str]:
    """Where groups can be made, and the file with a group's limit: of version 2, else of 1."""
    controllers = CONTROL_GROUPS / "cgroup.controllers"
    if not controllers.exists():
        return CONTROL_GROUPS / "memory", "memory.limit_in_bytes"
    if "memory" not in controllers.read_text().split():
        raise OSError("memory is no controller of version 2 here")
    # The one line of version 2; groups with processes hand out no controllers, the root does.
    own = next(line for line in OWN_GROUPS.read_text().splitlines() if line.startswith("0::"))
    parent = CONTROL_GROUPS / own.removeprefix("0::").strip("/")
    parent = parent if parent == CONTROL_GROUPS else parent.parent
    with (parent / "cgroup.subtree_control").open("w") as file:
        file.write("+memory")
    return parent, "memory.max"


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """A control group for the DRAM tier and a margin; skips where none can be made."""
    try:
        parent, limit = parent_group()
        path = parent / f"kvstored-test-{os.getpid()}"
        path.mkdir()
    except OSError as error:
        pytest.skip(f"control groups with memory limits cannot be made here: {error}")
    (path / limit).write_text(str(64 * MIB + MARGIN_BYTES))
    yield path
    # A group can be removed when its last process is gone for good.
    wait_until(lambda: not (path / "cgroup.procs").read_text().strip())
    path.rmdir()


@HUGE_PAGES
def test_a_control_group_limit(tmp_path: Path, limited_group: Path) -> None:
    """The daemon starts and serves; nothing of it is killed."""
    with ConfinedDaemon(tmp_path, limited_group) as daemon:
        for _ in range(ATTEMPTS):
            try:
                check_refused(daemon, beyond_huge_pages())
            except pytest.fail.Exception as failure:
                if daemon.is_confined():
                    pytest.fail(f"{failure}: {daemon.group_state()}")
                daemon.kill()
                daemon.start()
            else:
                return
    pytest.skip("something takes processes out of their control group here")


async def test_a_system_without_threads_refuses_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the client was cut off without a word, and the eventfd of its session stayed open."""
    limits = SessionLimits(arena_bytes_max=MIB, arenas_bytes_max=MIB, sessions_max=1)
    table = session_table(limits)
    grant = Grant(namespace="n", admin=False, huge_pages=False)
    others = set(threading.enumerate())

    def is_bell_gone() -> bool:
        new = set(threading.enumerate()) - others
        return not any(thread.name == "kvstored-bell" for thread in new)

    # One thread for the making of arenas, so that it is the bell's that cannot be started.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await table.close(await table.open(grant, client_name="c", arena_bytes=4096))
    await until(is_bell_gone)
    before = open_descriptors()

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("kvstored.server.held.bell.threading.Thread.start", fail)
        with pytest.raises(RefusedError, match="can't start new thread") as info:
            await table.open(grant, client_name="c", arena_bytes=4096)
    assert info.value.reason is Reason.LIMIT_EXCEEDED
    assert open_descriptors() - before == set()
    await table.close(await table.open(grant, client_name="c", arena_bytes=4096))
