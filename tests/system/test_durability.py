"""What was acknowledged as durable is there after any kill, and why it is."""

import re
import shutil
import threading
from pathlib import Path

import pytest

from kvstored_client import (
    Client,
)
from tests.faults.kill.tracing import AttachError, traced
from tests.support import labs
from tests.support.daemon import DaemonProcess
from tests.support.numbered_chunks import is_put, is_served

PUTS_OF_A_WRITER = 250


@labs.DURABLE_PUTS.first("puts_before_kill", [7, 1, 40], name=str)
def test_sigkill_among_durable_puts_loses_nothing_that_was_acked(
    daemon: DaemonProcess, puts_before_kill: int
) -> None:
    acked: list[int] = []
    enough = threading.Event()

    def write(first: int) -> None:
        with Client(daemon.socket_path, arena_bytes="4MiB", reconnect_interval_s=60) as client:
            # No more than the devices hold: nothing is evicted however late the kill comes.
            for number in range(first, first + PUTS_OF_A_WRITER):
                if not is_put(client, number):
                    return
                acked.append(number)
                if len(acked) >= puts_before_kill:
                    enough.set()

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 100_000, 200_000)]
    for writer in writers:
        writer.start()
    enough.wait()
    daemon.kill()
    for writer in writers:
        writer.join()
    daemon.start()
    with Client(daemon.socket_path, arena_bytes="4MiB") as client:
        assert [number for number in acked if not is_served(client, number)] == []
    assert daemon.terminate() == 0
    check = daemon.run_verb("check", "--json")
    assert check.returncode == 0, check.stdout


def traced_calls(trace: Path) -> list[tuple[str, str]]:
    """(system call, path of its first descriptor) of completed calls, in order."""
    calls = []
    unfinished: dict[str, tuple[str, str]] = {}
    for line in trace.read_text().splitlines():
        thread, rest = line.split(maxsplit=1)
        if started := re.match(r"(\w+)\(\d+<([^>]*)>", rest):
            call = (started[1], started[2])
            if rest.endswith("<unfinished ...>"):
                unfinished[thread] = call
            else:
                calls.append(call)
        elif rest.startswith("<...") and thread in unfinished:
            calls.append(unfinished.pop(thread))
    return calls


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_commit_order_as_the_kernel_sees_it(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Slices written, device synced, index written, index synced; then the ack."""
    daemon.terminate()
    # What io_uring writes is no system call.
    daemon.configure({"io": {"engine": "threads"}})
    daemon.start()
    trace = tmp_path / "trace"
    names = "pwritev,pwrite64,pwritev2,writev,fdatasync,fsync"
    with Client(daemon.socket_path, arena_bytes="4MiB") as client:
        assert is_put(client, 1)
        try:
            with traced(daemon.pid, "-f", "-y", "-e", f"trace={names}", "-o", str(trace)):
                assert is_put(client, 2)
        except AttachError as error:
            pytest.skip(f"strace may not attach to processes here: {error}")
    calls = [
        (name, "device" if "/device" in path else "index")
        for name, path in traced_calls(trace)
        if "/device" in path or path.endswith("data.mdb")
    ]
    device_writes = [
        i for i, call in enumerate(calls) if call[1] == "device" and "write" in call[0]
    ]
    device_syncs = [i for i, call in enumerate(calls) if call == ("fdatasync", "device")]
    index_writes = [i for i, call in enumerate(calls) if call[1] == "index" and "write" in call[0]]
    assert device_writes, calls
    assert device_writes[-1] < device_syncs[0] < index_writes[0], calls
    index_syncs = [
        i for i, (name, where) in enumerate(calls) if where == "index" and "sync" in name
    ]
    # LMDB writes its pages, syncs, and writes the meta page through a synchronous descriptor.
    assert index_writes[0] < index_syncs[0] < index_writes[-1], calls
