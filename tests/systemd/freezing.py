"""Freezes the event loop of a process, and nothing else of it: its other threads go on."""

import ctypes
import os

_SEIZE, _INTERRUPT = 0x4206, 0x4207
_LIBC = ctypes.CDLL(None, use_errno=True)


def freeze_until_it_ends(pid: int) -> None:
    """Stops the main thread of a process and returns when the process has been killed.

    The tracer has to wait for what it traces: the parent hears of its end only after that.
    """
    _trace(_SEIZE, pid)
    _trace(_INTERRUPT, pid)
    while True:
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return


def _trace(request: int, pid: int) -> None:
    arguments = map(ctypes.c_long, (request, pid, 0, 0))
    if _LIBC.ptrace(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
