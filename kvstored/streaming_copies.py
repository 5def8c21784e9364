"""Large copies that bypass the caches of the CPU.

The daemon copies states between frames and arenas: nobody reads them again soon, and they
are larger than a cache. The C library knows such copies (non-temporal stores), which move
a third less through memory, but by default it waits with them for sizes of many megabytes.
The size from which it uses them can only be set before a process starts.
"""

import os
import sys
from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.cpu.x86_non_temporal_threshold"
COPY_BYTES_MIN = 1024 * 1024
"""Copies from this size on bypass the caches; below, this C library copies otherwise."""


def with_streaming_copies(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The environment in which large copies bypass the caches; None when it decides already."""
    tunables = environment.get(VARIABLE, "")
    if TUNABLE in tunables:
        return None
    setting = f"{TUNABLE}={COPY_BYTES_MIN:#x}"
    return {**environment, VARIABLE: f"{tunables}:{setting}" if tunables else setting}


def restart_with_streaming_copies() -> None:
    """Runs this very command again, as the same process, unless that was done before."""
    environment = with_streaming_copies(os.environ)
    if environment is not None:
        os.execve(sys.executable, sys.orig_argv, environment)  # noqa: S606 - there is no shell
