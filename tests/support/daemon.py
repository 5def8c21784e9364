"""A real daemon process on devices of its own, for tests."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Self

from kvstored.cli.main import main
from tests.support.template import DAEMON, SHOW_THREADS, ForkedProcess, Template
from tests.support.verbs import MODULE as VERBS
from tests.support.verbs import VERB
from tests.support.waiting import PATIENCE_S, POLL_S, wait_until

MIB = 1024 * 1024
LOG_CHARACTERS = 50_000
"""Of the end of a log, where it is printed."""

Overrides = dict[str, dict[str, Any]]


@cache
def template() -> Template:
    """The process that daemons of tests are forked from; it ends with this one."""
    return Template(VERBS)


class DaemonProcess:
    """One daemon in ``folder``: formatted once, started, killed and started again at will.

    ``overrides`` maps sections to keys, as in the configuration file. Sockets lie in a
    short path of their own, because their length is limited. As a context manager it
    formats, starts, and in the end kills the daemon and removes its sockets.

    It and its verbs are forked from a process that has imported everything, which takes a tenth of
    the CPU time of a start. With ``from_command`` they are what a user starts, ``kvstored run``:
    for tests of that start and of the process's memory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        device_count: int = 2,
        overrides: Overrides | None = None,
        from_command: bool = False,
    ) -> None:
        self.folder = folder
        self.devices = [folder / f"device{index}" for index in range(device_count)]
        self.index = folder / "index"
        self.config_path = folder / "kvstored.toml"
        self.log_path = folder / "daemon.log"
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._from_command = from_command
        self._sockets = tempfile.TemporaryDirectory(prefix="kvstored-", dir="/tmp")
        # Other users must reach the sockets in tests of who may connect.
        Path(self._sockets.name).chmod(0o755)
        self.socket_path = Path(self._sockets.name) / "kvstored.sock"
        self.grpc_socket_path = Path(self._sockets.name) / "grpc.sock"
        self.configure(overrides or {})

    def configure(self, overrides: Overrides) -> None:
        """Writes the configuration file; a running daemon does not see it."""
        sections: Overrides = {
            "store": {
                "devices": [str(path) for path in self.devices],
                "device_bytes": 128 * MIB,
                "slab_bytes": 8 * MIB,
                "index": str(self.index),
                "index_map_bytes": 256 * MIB,
            },
            "dram": {"capacity_bytes": 64 * MIB},
            "server": {
                "socket": str(self.socket_path),
                "grpc_socket": str(self.grpc_socket_path),
            },
        }
        for section, values in overrides.items():
            sections.setdefault(section, {}).update(values)
        self.config_path.write_text(to_toml(sections))

    @property
    def log(self) -> str:
        """What the daemon has logged in all its starts."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def show_threads(self) -> None:
        """Prints where all threads of a forked daemon are, with the end of its log."""
        assert isinstance(self.process, ForkedProcess)
        self.process.send_signal(SHOW_THREADS)
        time.sleep(1.0)
        sys.stdout.write(self.log[-LOG_CHARACTERS:])

    @property
    def pid(self) -> int:
        """Process id of the running daemon."""
        assert self.process is not None
        return self.process.pid

    def command(self, *arguments: str) -> list[str]:
        """The command line of a verb with this configuration."""
        verb, *rest = arguments
        return [sys.executable, "-m", "kvstored", verb, "--config", str(self.config_path), *rest]

    def run_verb(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a verb to its end."""
        command = self.command(*arguments)
        if not self._from_command:
            return self._forked_verb(command)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def _forked_verb(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        words = command[command.index("kvstored") + 1 :]
        with tempfile.TemporaryDirectory() as folder:
            output, errors = (Path(folder, name) for name in ("output", "errors"))
            # What the template itself says of a job goes where errors go.
            process = template().fork(VERB, errors, words=words, output=str(output))
            try:
                wait_until(lambda: process.poll() is not None, within_s=PATIENCE_S)
            finally:
                process.kill()
            return subprocess.CompletedProcess(
                command, process.wait(), output.read_text(), errors.read_text()
            )

    def format(self) -> None:
        """Formats the devices, in this process: it takes a tenth of the time of another one."""
        assert main(["format", "--config", str(self.config_path)]) == 0

    def start(self, *, environment: dict[str, str] | None = None) -> None:
        """Starts the daemon and waits until it listens; fails with its log when it ends."""
        assert self.process is None, "the daemon runs already"
        if self._from_command:
            with self.log_path.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command("run"), stderr=log, env={**os.environ, **(environment or {})}
                )
        else:
            assert environment is None, "a forked daemon has its template's environment"
            self.process = template().fork(DAEMON, self.log_path, config=str(self.config_path))
        deadline = time.monotonic() + PATIENCE_S
        while not listens(self.socket_path):
            assert self.process.poll() is None, f"the daemon ended:\n{self.log}"
            assert time.monotonic() < deadline, f"the daemon does not listen:\n{self.log}"
            time.sleep(POLL_S)

    def kill(self) -> None:
        """SIGKILL: what is not durable is lost."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None

    def terminate(self) -> int:
        """SIGTERM: drains; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        self.process = None
        return status

    def restart(self) -> None:
        """Kills and starts the daemon."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Kills the daemon and removes its sockets; its folder stays."""
        self.kill()
        self._sockets.cleanup()

    def __enter__(self) -> Self:
        self.format()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def listens(path: Path) -> bool:
    """Whether a process accepts connections on a Unix socket."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe,
        contextlib.suppress(OSError),
    ):
        probe.connect(str(path))
        return True
    return False


def to_toml(sections: Overrides) -> str:
    """A configuration of scalars, lists, and lists of tables (written inline) as TOML."""
    lines = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {toml_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """One value; strings and numbers are written in TOML as in JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value)
