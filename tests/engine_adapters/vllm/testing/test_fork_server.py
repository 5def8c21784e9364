import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_adapters.vllm.testing.errors import EngineError
from engine_adapters.vllm.testing.fork_server import ForkedProcess, ForkServer

CHILD = """
import atexit, os, sys, tempfile
atexit.register(lambda: print("ended", flush=True))
print(os.getppid(), "wave" in sys.modules, os.environ.get("OWN"), tempfile.gettempdir(), flush=True)
for line in sys.stdin:
    print(line.strip().upper(), flush=True)
print("from the child", file=sys.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "forked_child.py").write_text(CHILD)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[ForkServer]:
    packages = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": packages}
    with ForkServer(sys.executable, environment, modules=["wave", "tempfile"]) as server:
        yield server


def start(server: ForkServer, folder: Path, own: str) -> ForkedProcess:
    with (folder / "log").open("a") as log:
        environment = {"OWN": own, "TMPDIR": str(folder)}
        return server.start("forked_child", log, environment)


def end(process: ForkedProcess) -> None:
    process.kill()
    process.wait(30)
    process.close()


def test_children_are_copies_with_an_environment_of_their_own(
    server: ForkServer, folder: Path
) -> None:
    processes = [start(server, folder, own) for own in ("one", "two")]
    for process, own in zip(processes, ("one", "two"), strict=True):
        parent, *words = process.stdout.readline().split()
        assert int(parent) != os.getpid()
        assert words == ["True", own, str(folder)]
        process.stdin.write("said\n")
        process.stdin.flush()
        assert process.stdout.readline() == "SAID\n"
    for process in processes:
        end(process)


def test_child_ends_as_a_process_does(server: ForkServer, folder: Path) -> None:
    process = start(server, folder, "own")
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.stdin.close()
    process.wait(30)
    assert process.stdout.read() == "ended\n"
    assert (folder / "log").read_text() == "from the child\n"
    process.send_signal(signal.SIGCONT)
    process.close()


def test_child_outlives_the_server_and_its_end_is_an_error(
    server: ForkServer, folder: Path
) -> None:
    process = start(server, folder, "own")
    process.stdout.readline()
    server._process.kill()
    server._process.wait()
    with pytest.raises(EngineError, match="has ended"):
        start(server, folder, "own")
    process.stdin.write("said\n")
    process.stdin.flush()
    assert process.stdout.readline() == "SAID\n"
    end(process)
