"""Looks at the kernel, the memory and the limits of this process."""

import ctypes
import os
import platform
import resource
from pathlib import Path

from kvstored.doctor.facts import MachineFacts
from kvstored.io.memory_group import group_room_bytes
from kvstored.io.ring import probe
from kvstored_contract.limits import HUGE_PAGE_BYTES

_TIMEX_BYTES = 208
_CLOCK_ERROR = 5
"""What ``adjtimex`` returns for a clock that nothing keeps right."""


def look_at_machine(proc: Path = Path("/proc")) -> MachineFacts:
    """Facts of now; ``proc`` is where the kernel shows itself."""
    memory = _memory_lines(proc / "meminfo")
    kernel = proc / "sys" / "vm"
    pages = _number(kernel / "nr_hugepages") + _number(kernel / "nr_overcommit_hugepages")
    open_files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MachineFacts(
        kernel_release=platform.release(),
        io_uring_error=_io_uring_error(),
        physical_bytes=memory.get("MemTotal", 0),
        available_bytes=memory.get("MemAvailable", 0),
        group_room_bytes=group_room_bytes(),
        huge_page_pool_bytes=pages * HUGE_PAGE_BYTES,
        open_files_max=open_files_max,
        is_clock_set=_is_clock_set(),
    )


def _io_uring_error() -> str | None:
    try:
        probe()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None


def _memory_lines(path: Path) -> dict[str, int]:
    """Bytes by the names of ``/proc/meminfo``; what is not readable is left out."""
    found: dict[str, int] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if len(fields) == 2 and fields[1] == "kB":
            found[name] = int(fields[0]) * 1024
    return found


def _number(path: Path) -> int:
    """0 where a file cannot be read, as for a service that does not see the kernel's settings."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _is_clock_set() -> bool | None:
    libc = ctypes.CDLL(None, use_errno=True)
    # All zeroes: nothing is changed, the state is only returned.
    state: int = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _CLOCK_ERROR
