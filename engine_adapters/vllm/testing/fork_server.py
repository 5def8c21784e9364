"""Processes that begin as copies of one that has imported vLLM, which takes longer than the rest.

``python -m engine_adapters.vllm.testing.fork_server SOCKET MODULE ...`` imports the modules and
then answers each request at its socket by a child, which runs as ``python -m`` would run it.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Self

from engine_adapters.vllm.testing.errors import EngineError

ENGINE_MODULES = (
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.llama",
    "vllm.entrypoints.llm",
    "engine_adapters.vllm.connector",
)
"""What every engine imports."""
_REQUEST_BYTES_MAX = 128 * 1024
_STANDARD_FDS = 3


class ForkedProcess:
    """One process, as ``subprocess.Popen`` would have it with pipes of text. Not thread-safe."""

    def __init__(self, pid_fd: int, stdin: IO[str], stdout: IO[str]) -> None:
        self._pid_fd = pid_fd
        self.stdin = stdin
        self.stdout = stdout

    def send_signal(self, number: int) -> None:
        """Sends a signal, to a process that has ended none."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pid_fd, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended; raises TimeoutExpired after ``timeout`` seconds."""
        end = select.poll()
        end.register(self._pid_fd, select.POLLIN)
        if not end.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)

    def close(self) -> None:
        """Closes its pipes, and what it is known by."""
        self.stdin.close()
        self.stdout.close()
        os.close(self._pid_fd)


class ForkServer:
    """The process with all imports, and the way to its copies. Not thread-safe.

    ``environment`` must have what the modules look at when they are imported: what a child
    gets besides comes later. Ends with the process that made it, if nobody closes it.
    """

    def __init__(
        self,
        python: str,
        environment: Mapping[str, str],
        *,
        modules: Sequence[str] = ENGINE_MODULES,
    ) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", __name__, str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=dict(environment),
            )

    def start(self, module: str, log: IO[str], environment: Mapping[str, str]) -> ForkedProcess:
        """Runs a module in a copy; raises EngineError where the server has ended."""
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        request = json.dumps({"module": module, "environment": dict(environment)}).encode()
        pid_fds: list[int] = []
        with suppress(ConnectionError):
            socket.send_fds(self._socket, [request], [stdin, stdout, log.fileno()])
            _, pid_fds, _, _ = socket.recv_fds(self._socket, 1, 1)
        os.close(stdin)
        os.close(stdout)
        if not pid_fds:
            os.close(to_stdin)
            os.close(from_stdout)
            raise EngineError("the process that engines are copies of has ended")
        return ForkedProcess(pid_fds[0], os.fdopen(to_stdin, "w"), os.fdopen(from_stdout))

    def close(self) -> None:
        """Ends the server; its children go on."""
        self._socket.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(requests: socket.socket) -> str | None:
    """Forks for each request until there are no more; the module to run, in a child."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, _STANDARD_FDS)
        _reap()
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            requests.close()
            request = json.loads(message)
            _become(request["environment"], fds)
            return str(request["module"])
        pid_fd = os.pidfd_open(pid)
        socket.send_fds(requests, [b"1"], [pid_fd])
        for fd in (*fds, pid_fd):
            os.close(fd)


def _reap() -> None:
    """Forgets children that have ended; none has been forgotten before its descriptor was made."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(environment: Mapping[str, str], fds: Sequence[int]) -> None:
    """What a child has of its own from its beginning."""
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None


def _end_copy(server_pid: int) -> None:
    """Leaves to the system what an interpreter would take seconds to give back one by one."""
    if os.getpid() != server_pid:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def main() -> None:
    """Serves the socket whose number is named first."""
    number, *modules = sys.argv[1:]
    # Registered first, it runs last.
    atexit.register(_end_copy, os.getpid())
    for module in modules:
        importlib.import_module(module)
    # What is there by now is never searched for garbage, in no child either.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(number)) as requests:
        chosen = serve(requests)
    if chosen is not None:
        sys.argv = [chosen]
        runpy.run_module(chosen, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
