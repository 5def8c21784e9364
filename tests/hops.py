"""Counts the files that a put, a get and a Cake restore cross: ``python -m tests.hops``.

A file counts when one of its functions runs on the way, on whatever thread: on that of the engine
that waits, of the server, of an I/O engine, of the commit. Real parts do it: a client and a server
in one process, over files. The walk of a restore ends at the SDK's door: its store is the one in
memory, which does not count, nor do generated files. Files that only a start needs are left out,
because something like it was done once before.
"""

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from kvstored.config import load_config
from kvstored.daemon import open_store
from kvstored.server.access import AccessRules
from kvstored.server.listen import SocketPermissions
from kvstored.server.notify import Notifier
from kvstored.server.server import Server, ServerOptions
from kvstored.server.session_table import SessionLimits
from kvstored.tiers.chunks.frame import FrameState
from kvstored.tiers.tiered_store import TieredStore
from kvstored_client import Ack, Client, NewChunk, Placement
from tests.engine_adapters.runner import cake_lab
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.kvstored_client.chunk_calls import ARENA_BYTES, CHUNKS, filled, region_of
from tests.support.daemon import DaemonProcess, listens
from tests.support.rows import MIXED
from tests.support.waiting import wait_until
from tests.tidy.test_sizes import FILE_LINES_MAX

ROOT = Path(__file__).parents[1]
LIMITS = {"put": 84, "get": 91, "Cake restore": 46}
"""Files that each walk crosses at most."""
_BY_CLOCK = {
    "kvstored/server/connections.py",
    "kvstored/server/fair_connections.py",
    "kvstored/server/held/bell.py",
    "kvstored/server/held/leases.py",
    "kvstored/server/operators/kept_pins.py",
    "kvstored/server/peer.py",
    "kvstored/server/server.py",
    "kvstored/store/index/health.py",
}
"""The sweeps of leases and of pins, a ring of the bell, a look at connections or the index: they
come by the clock, during a walk or not, and do not count."""
_OF_PUTS = {"kvstored/store/write/committer.py"}
"""What may still be going on when a put has ended, and does not count for what comes next."""
_SDK = ("client/kvstored_client", "protos/kvstored_contract")
_FOLDERS = {
    "put": ("kvstored", *_SDK),
    "get": ("kvstored", *_SDK),
    "Cake restore": ("engine_adapters",),
}
_STANDS_IN = "testing"
"""The folder of what stands in for something else."""
SMALL_LINES = 100
"""A file of fewer could be a part of another one."""


class Recorder:
    """The files whose functions run while ``is_on``; it sees threads that begin after it."""

    def __init__(self) -> None:
        self.is_on = False
        self._files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """The interpreter's hook."""
        if self.is_on and event == "call" and frame.f_code.co_name != "<module>":
            self._files.add(frame.f_code.co_filename)

    def crossed(self, folders: tuple[str, ...]) -> list[str]:
        """Those of our own below some folders, sorted."""
        paths = {Path(name) for name in self._files if name.startswith(f"{ROOT}/")}
        names = {str(path.relative_to(ROOT)) for path in paths if _STANDS_IN not in path.parts}
        names -= _BY_CLOCK
        return sorted(
            name for name in names if name.startswith(tuple(f"{one}/" for one in folders))
        )

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Within it the threads that begin, and this one, are seen."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


@contextmanager
def served(daemon: DaemonProcess) -> Iterator[TieredStore]:
    """A server over the files of a daemon that does not run, and its store."""
    config = load_config(daemon.config_path)
    with open_store(config) as (store, epoch):
        options = ServerOptions(
            socket=config.server.socket,
            grpc_socket=config.server.grpc_socket,
            permissions=SocketPermissions(mode=0o600, gid=None),
            rules=AccessRules(daemon_uid=os.getuid()),
            limits=SessionLimits(
                arena_bytes_max=ARENA_BYTES, arenas_bytes_max=2 * ARENA_BYTES, sessions_max=2
            ),
            epoch=epoch,
        )
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        server = Server(store, options, Notifier(None, watchdog_s=None))
        thread = threading.Thread(target=lambda: loop.run_until_complete(server.run(stop)))
        thread.start()
        try:
            # A socket file is there before anybody listens.
            wait_until(lambda: listens(options.socket))
            yield store
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()
            store.close()


def connected(daemon: DaemonProcess) -> Client:
    """A client of it that raises."""
    return Client(daemon.socket_path, strict=True, arena_bytes=ARENA_BYTES)


def put(client: Client, first_token: int) -> list[bytes]:
    """Stores chunks durably; their keys."""
    keys = client.prefix_keys(MIXED, range(first_token, first_token + CHUNKS * MIXED.chunk_tokens))
    region = filled(client, seed=first_token)
    chunks = [NewChunk(key=key, token_count=MIXED.chunk_tokens) for key in keys]
    report = client.put(MIXED, chunks, Placement.contiguous(region, MIXED), ack=Ack.DURABLE)
    assert report.stored_count == CHUNKS
    region.release()
    return keys


def get(client: Client, keys: list[bytes]) -> None:
    """Brings stored chunks into the arena."""
    assert client.match(MIXED, keys).chunk_count == CHUNKS
    region = region_of(client)
    with client.read(MIXED, keys, Placement.contiguous(region, MIXED)) as read:
        read.wait()
        assert all(read.is_resident(chunk) for chunk in range(CHUNKS))
    region.release()


def files_of_put_and_get(folder: Path) -> dict[str, list[str]]:
    """What both cross; the get finds nothing in DRAM, and is the one that promotes."""
    daemon = DaemonProcess(folder)
    daemon.format()
    putting, getting = Recorder(), Recorder()
    with putting.hooked(), served(daemon), connected(daemon) as client:
        put(client, first_token=0)
        putting.is_on = True
        keys = put(client, first_token=1)
        putting.is_on = False
    with getting.hooked(), served(daemon) as store, connected(daemon) as client:
        get(client, keys)
        getting.is_on = True
        get(client, keys)
        # Without a call: that would count.
        frames = store._dram._frames
        wait_until(lambda: [one.state for one in frames.values()] == CHUNKS * [FrameState.CLEAN])
        getting.is_on = False
    return {
        "put": putting.crossed(_FOLDERS["put"]),
        "get": [file for file in getting.crossed(_FOLDERS["get"]) if file not in _OF_PUTS],
    }


def files_of_restore(folder: Path) -> list[str]:
    """What a restore of keys and values from both ends crosses, with its steps."""
    write_llama(folder)
    lab = cake_lab.Lab(Model.from_directory(folder), LayerSchedule.of((Source.KV, 3)))
    recorder = Recorder()
    with recorder.hooked():
        recorder.is_on = True
        restored = cake_lab.restore(lab, cake_lab.LabClient(lab.chunks), arrivals=(2,))
        recorder.is_on = False
    assert restored.completion.restore.meeting_token
    return recorder.crossed(_FOLDERS["Cake restore"])


def count() -> dict[str, list[str]]:
    """The files of every walk."""
    with tempfile.TemporaryDirectory() as name:
        store, model = Path(name, "store"), Path(name, "model")
        store.mkdir()
        model.mkdir()
        return files_of_put_and_get(store) | {"Cake restore": files_of_restore(model)}


def without_small(files: Sequence[str]) -> int:
    """Files left when those below ``SMALL_LINES`` are merged into what they are used by."""
    return sum(line_count(file) >= SMALL_LINES for file in files)


def packed(files: Sequence[str]) -> int:
    """Files left when those of a folder are merged as far as ``FILE_LINES_MAX`` lets them."""
    rooms: dict[str, list[int]] = {}
    for lines, file in sorted(((line_count(file), file) for file in files), reverse=True):
        left = rooms.setdefault(str(Path(file).parent), [])
        place = next((index for index, room in enumerate(left) if room >= lines), None)
        if place is None:
            left.append(FILE_LINES_MAX - lines)
        else:
            left[place] -= lines
    return sum(map(len, rooms.values()))


def line_count(file: str) -> int:
    """Lines of a file, its docstring included."""
    return len((ROOT / file).read_text().splitlines())


def main() -> None:
    """Prints the walks, with every file, and how many would be left after a merge."""
    for walk, files in count().items():
        lines = sum(map(line_count, files))
        sys.stdout.write(
            f"{walk}: {len(files)} files of {lines} lines; {without_small(files)} if those below "
            f"{SMALL_LINES} lines were merged; {packed(files)} if folders were packed\n"
            + "".join(f"  {one}\n" for one in files)
        )


if __name__ == "__main__":
    main()
