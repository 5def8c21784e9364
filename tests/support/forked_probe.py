"""The walk through the index after an unclean stop, in a forked child instead of a new process.

It stands in for ``subprocess.Popen`` in ``kvstored.store.index.probe``: the same code in a
process of its own, without the quarter of a second that a new interpreter takes.
"""

import os
import signal
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

from kvstored.store.index import probe as index_probe

STDERR = 2
ANONYMOUS = 0
"""The kind of a descriptor of epoll or eventfd."""


class ForkedProbe:
    """As much of ``subprocess.Popen`` as the probe uses."""

    def __init__(self, command: list[str], **_: object) -> None:
        output, child_output = os.pipe()
        errors, child_errors = os.pipe()
        self.returncode: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(child_output, 1)
            os.dup2(child_errors, 2)
            # The parent's may write elsewhere, as under pytest.
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
            _close_inherited()
            os._exit(_probe(command[3:]))
        os.close(child_output)
        os.close(child_errors)
        self.stdout = os.fdopen(output, "rb")
        self._errors = os.fdopen(errors, "rb")

    def communicate(self) -> tuple[bytes, bytes]:
        """What is left of the output, and the errors; waits for the end."""
        result = self.stdout.read(), self._errors.read()
        self._wait()
        return result

    def kill(self) -> None:
        """Ends the child."""
        if self.returncode is None:
            os.kill(self._pid, signal.SIGKILL)

    def _wait(self) -> None:
        if self.returncode is None:
            _, status = os.waitpid(self._pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self._errors.close()
        self._wait()


def _close_inherited() -> None:
    """Closes what holds the locks of devices and index, and the ends of others' pipes.

    Sockets and what epoll waits with stay: gRPC's threads run in a forked child as well, and end it
    with SIGABRT where they find their descriptors closed.
    """
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        # That of the list itself is gone.
        with suppress(OSError):
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if descriptor > STDERR and kind not in (stat.S_IFSOCK, ANONYMOUS):
                os.close(descriptor)


def _probe(arguments: list[str]) -> int:
    try:
        index_probe.main(arguments)
        sys.stdout.flush()
    except SystemExit as ending:
        if isinstance(ending.code, int):
            return ending.code
        os.write(2, str(ending.code).encode())
        return 1
    except BaseException as error:
        os.write(2, repr(error).encode())
        return 1
    return 0
