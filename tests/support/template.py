"""A process that has imported everything and forks daemons and clients of a few milliseconds.

``python -m tests.support.template MODULE ...`` imports these modules, too, and takes one JSON
object a line: what to fork, or which child to wait for. It never makes a thread, so that its
children may fork and go on. A job is named ``MODULE:FUNCTION``; the function takes the rest of the
object.
"""

import faulthandler
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any, Self

from kvstored.c_library import tuned_environment
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
WAITS = ("poll", "wait")
"""What is asked of a child that was forked before."""
SHOW_THREADS = signal.SIGUSR2
"""A forked daemon writes to its log where all its threads are."""
COMM_CHARACTERS = 15
"""Longest name that the kernel keeps of a thread."""


class ForkedProcess:
    """A child of the template, with as much of ``subprocess.Popen`` as the tests use."""

    def __init__(self, template: "Template", pid: int) -> None:
        self._template = template
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        if self.returncode is None:
            self.returncode = self._template.ask({"job": "poll", "pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """The exit status, when it has one."""
        if self.returncode is None:
            self.returncode = self._template.ask({"job": "wait", "pid": self.pid})
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """Any signal, as long as the process has not been waited for."""
        # Until it is waited for, its number belongs to nobody else.
        if self.returncode is None:
            os.kill(self.pid, number)


class Template:
    """The template process; as a context manager it ends with the body.

    ``modules`` are imported before it forks: those of the jobs that it is asked for.
    """

    def __init__(self, *modules: str) -> None:
        environment = tuned_environment(os.environ) or dict(os.environ)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.template", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            # Threads of a numerical library would not survive the forks.
            env={**environment, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        self._lock = threading.Lock()
        self.ask({"job": "poll", "pid": 0})

    def fork(self, job: str, log: Path, **arguments: Any) -> ForkedProcess:
        """Starts ``job``, a function's name, whose messages go to ``log``."""
        sys.audit("kvstored.fork", job)
        pid = self.ask({"job": job, "log": str(log), **arguments})
        return ForkedProcess(self, pid)

    def ask(self, question: dict[str, Any]) -> Any:
        """Sends one line and returns the answer to it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE_S)


def run_daemon_job(arguments: dict[str, Any]) -> None:
    """The daemon with the configuration in ``config``, and the variables of ``environment``."""
    from kvstored.cli.run_command import LOG_FORMAT, log_handler
    from kvstored.config import load_config
    from kvstored.daemon import run_daemon
    from kvstored.store.index import probe as index_probe
    from tests.support.forked_probe import ForkedProbe

    logging.basicConfig(handlers=[log_handler()], level=logging.INFO, format=LOG_FORMAT)
    faulthandler.register(SHOW_THREADS)
    os.environ.update(arguments.get("environment", {}))
    vars(index_probe)["subprocess"] = SimpleNamespace(Popen=ForkedProbe, PIPE=subprocess.PIPE)
    name_threads()
    wait_for_go(arguments)
    run_daemon(load_config(Path(arguments["config"])))


DAEMON = "tests.support.template:run_daemon_job"
DAEMON_IMPORTS = ("kvstored.cli.run_command", "tests.support.forked_probe")


def wait_for_go(arguments: dict[str, Any]) -> None:
    """Waits until somebody writes to the pipe ``go``, if there is one: a tracer is attached."""
    if arguments.get("go"):
        go = os.open(arguments["go"], os.O_RDONLY)
        os.read(go, 1)
        os.close(go)


def name_threads() -> None:
    """Tells the kernel the names of this process's threads, for tracers to find them."""
    run = threading.Thread.run

    def run_named(thread: threading.Thread) -> None:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(thread.name[:COMM_CHARACTERS])
        run(thread)

    vars(threading)["Thread"].run = run_named


def main() -> None:
    """Answers questions until the input ends, then ends its children."""
    for module in (DAEMON.partition(":")[0], *DAEMON_IMPORTS, *sys.argv[1:]):
        import_module(module)
    children: set[int] = set()
    for line in iter(sys.stdin.buffer.readline, b""):
        answer = _answer(json.loads(line), children)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _answer(question: dict[str, Any], children: set[int]) -> int | None:
    job, pid = question["job"], question.get("pid", 0)
    if job in WAITS:
        return _status(pid, children, 0 if job == "wait" else os.WNOHANG)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _become(question)
    children.add(child)
    return child


def _status(pid: int, children: set[int], flags: int) -> int | None:
    if pid not in children:
        return None
    found, status = os.waitpid(pid, flags)
    if found == 0:
        return None
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)


def _become(question: dict[str, Any]) -> None:
    """Runs a job in a forked child and ends it."""
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(question["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        os.close(nothing)
        os.close(log)
        resolve_name(question["job"])(question)
        status = 0
    except BaseException:
        logging.basicConfig(stream=sys.stderr)
        logging.getLogger(__name__).exception("a job failed")
    os._exit(status)


if __name__ == "__main__":
    main()
