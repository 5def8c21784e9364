"""A real daemon for benchmarks: formatted, started, restarted and stopped by its own pid."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from benchmarks.benchmark import BenchmarkError
from benchmarks.core_split import CoreSplit
from benchmarks.cpu_time import process_cpu_s
from kvstored_client import Client

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_MESSAGE_BYTES_MAX = 4096
_LOG_LINES_SHOWN = 5


def _short_path() -> Path:
    return Path(tempfile.gettempdir()) / f"kvstored-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """A daemon on ``device_count`` devices in ``folder``, which exists.

    The devices are new unless ``is_formatted``.
    """

    folder: Path
    device_bytes: int
    dram_bytes: int
    arena_bytes_max: int
    device_count: int = 2
    slab_bytes: int = 64 * 1024 * 1024
    device_bytes_per_s_max: int | None = None
    """Each device is limited to this rate."""
    read_bytes_max: int | None = None
    """Largest read that merges neighbouring slices; None is the daemon's own."""
    depth_per_device: int | None = None
    """Transfers in flight at once; None is the daemon's own."""
    retention: str | None = None
    """What keeps chunks in DRAM and on devices (``lru``); None is the daemon's own."""
    run_module: str = "kvstored"
    """What serves: a module that takes ``run --config FILE`` as kvstored does."""
    is_formatted: bool = False
    index_map_bytes: int = 1024 * 1024 * 1024
    start_timeout_s: float = _START_TIMEOUT_S
    split: CoreSplit | None = None
    """Where it runs; None is wherever this process may."""
    sockets: Path = field(default_factory=_short_path)
    """Folder of the sockets, whose paths must be short; made by ``format`` and removed at
    the end of the process."""

    @property
    def socket(self) -> Path:
        """Where clients connect."""
        return self.sockets / "kvstored.sock"

    @property
    def config(self) -> Path:
        """The daemon's configuration file."""
        return self.folder / "kvstored.toml"

    def document(self) -> str:
        """The configuration as TOML; its paths are relative to the folder."""
        devices = ", ".join(f'"device{index}"' for index in range(self.device_count))
        keeps = [] if self.retention is None else [f'retention = "{self.retention}"']
        limit, merged = self.device_bytes_per_s_max, self.read_bytes_max
        depth = self.depth_per_device
        return "\n".join(
            [
                "[store]",
                f"devices = [{devices}]",
                f"device_bytes = {self.device_bytes}",
                f"slab_bytes = {self.slab_bytes}",
                'index = "index"',
                f"index_map_bytes = {self.index_map_bytes}",
                *keeps,
                "[dram]",
                f"capacity_bytes = {self.dram_bytes}",
                *keeps,
                "[io]",
                *([] if limit is None else [f"device_bytes_per_s_max = {limit}"]),
                *([] if merged is None else [f"read_bytes_max = {merged}"]),
                *([] if depth is None else [f"depth_per_device = {depth}"]),
                "[server]",
                f'socket = "{self.socket}"',
                f'grpc_socket = "{self.sockets / "grpc.sock"}"',
                f"arena_bytes_max = {self.arena_bytes_max}",
                "",
            ]
        )


class DaemonProcess:
    """``kvstored run`` as a child process. Not thread-safe.

    As a context manager it formats and starts on entry and stops on exit. Raises
    BenchmarkError with the end of the daemon's log when it does not do what it should.
    """

    def __init__(self, options: DaemonOptions) -> None:
        self.options = options
        self._log = options.folder / "daemon.log"
        self._child: subprocess.Popen[bytes] | None = None
        # The daemon reports here as to systemd, also at its end.
        self._notify_address = options.sockets / "notify.sock"
        self._notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def prepare(self) -> None:
        """Writes the configuration; devices that are formatted already can be served then."""
        self.options.config.write_text(self.options.document())
        self.options.sockets.mkdir(mode=0o700)
        self._notifications.bind(str(self._notify_address))

    def format(self) -> None:
        """Writes the configuration and formats the devices."""
        self.prepare()
        with self._log.open("ab") as log:
            status = self._spawn("kvstored", "format", log).wait()
        if status != 0:
            raise self._failure(f"kvstored format ended with status {status}")

    def start(self) -> None:
        """Starts the daemon and returns when it says that it is ready."""
        assert self._child is None
        try:
            with self._log.open("ab") as log:
                self._child = self._spawn(self.options.run_module, "run", log)
            self._wait_until_ready(self._child)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Drains and ends the daemon."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            status = self._child.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise self._failure(f"the daemon did not stop in {_STOP_TIMEOUT_S:.0f} s") from error
        self._child = None
        if status != 0:
            raise self._failure(f"the daemon ended with status {status}")

    def kill(self) -> None:
        """Ends the daemon at once (SIGKILL)."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def restart(self) -> None:
        """Stops and starts: DRAM is empty afterwards."""
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        """Process id of the running daemon."""
        assert self._child is not None
        return self._child.pid

    def cpu_s(self) -> float:
        """CPU seconds that the running daemon has used since its start."""
        return process_cpu_s(self.pid)

    def _spawn(self, module: str, verb: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("KVSTORED_")
        }
        environment["NOTIFY_SOCKET"] = str(self._notify_address)
        child = subprocess.Popen(
            [sys.executable, "-m", module, verb, "--config", str(self.options.config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        if self.options.split is not None:
            self.options.split.place_child(child.pid)
        return child

    def _wait_until_ready(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.options.start_timeout_s
        # Short waits, so that a daemon that ends without a word is noticed.
        self._notifications.settimeout(0.1)
        while time.monotonic() < deadline:
            try:
                if b"READY=1" in self._notifications.recv(_MESSAGE_BYTES_MAX).split(b"\n"):
                    return
            except TimeoutError:
                if child.poll() is not None:
                    raise self._failure(
                        f"the daemon ended with status {child.returncode} before it was ready"
                    ) from None
        raise self._failure(f"the daemon was not ready in {self.options.start_timeout_s:.0f} s")

    def _failure(self, what: str) -> BenchmarkError:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        return BenchmarkError("; its log ends with:\n".join([what, "\n".join(lines)]))

    def __enter__(self) -> Self:
        try:
            if self.options.is_formatted:
                self.prepare()
            else:
                self.format()
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.stop()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        """Leaves neither a process nor a socket behind."""
        self.kill()
        self._notifications.close()
        shutil.rmtree(self.options.sockets, ignore_errors=True)


@contextmanager
def served(options: DaemonOptions, *, name: str) -> Iterator[tuple[DaemonProcess, Client]]:
    """A daemon, and a client whose arena is the largest that it grants.

    Raises BenchmarkError where they do not meet.
    """
    with (
        DaemonProcess(options) as daemon,
        Client(
            options.socket,
            arena_bytes=options.arena_bytes_max,
            name=name,
            reconnect_interval_s=0.0,
        ) as client,
    ):
        check_available(client)
        yield daemon, client


def check_available(client: Client) -> None:
    """Raises BenchmarkError unless the client has a session with a daemon that was started."""
    if not client.available():
        raise BenchmarkError("the daemon is not there after its start")
