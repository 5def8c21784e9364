"""How the C library copies and allocates in the daemon.

Copies: the daemon moves states between frames and arenas; nobody reads them again soon,
and they are larger than a cache. The C library knows copies that bypass the caches
(non-temporal stores) and move a third less through memory, but by default it waits with
them for sizes of many megabytes.

Heaps: by default every new thread may get a heap of its own, up to eight a core, each with
free memory that the others cannot use. A daemon whose threads come with its sessions would
grow for hours; few heaps reach their size at once and keep it.

Each thread keeps blocks of every size that it freed for itself: no other thread can use them and
nothing gives them back, and with tens of threads they too grow for hours. They keep none here: the
interpreter has its own allocator for what is small.

All three can only be set before a process starts. And what is freed in the middle of a heap stays
resident by default: with sessions that come and go, a heap is ever more thinly used. So
free pages are given back now and then.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
COPY_BYTES_MIN = 512 * 1024
"""Copies from this size on bypass the caches; below, this C library copies otherwise. A slice of 64
tokens with 4,096 hidden states of 16 bits has it: slices go one by one where layers come first."""
HEAPS_MAX = 2
"""Threads outside the interpreter that allocate at one moment are few: those of gRPC."""
FREED_KEPT_MAX = 0
"""Blocks of each size that a thread keeps for itself when it frees them."""
RETURN_INTERVAL_S = 30.0
"""Heaps give memory that is free back to the system so often."""
TUNABLES = {
    "glibc.cpu.x86_non_temporal_threshold": f"{COPY_BYTES_MIN:#x}",
    "glibc.malloc.arena_max": str(HEAPS_MAX),
    "glibc.malloc.tcache_count": str(FREED_KEPT_MAX),
}


def tuned_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The environment with each tunable that it does not decide; None when it decides all."""
    tunables = environment.get(VARIABLE, "")
    missing = [f"{name}={value}" for name, value in TUNABLES.items() if name not in tunables]
    if not missing:
        return None
    return {**environment, VARIABLE: ":".join(filter(None, [tunables, *missing]))}


def restart_tuned() -> None:
    """Runs this very command again, as the same process, unless that was done before."""
    environment = tuned_environment(os.environ)
    if environment is not None:
        os.execve(sys.executable, sys.orig_argv, environment)  # noqa: S606 - there is no shell


async def return_free_memory(interval_s: float = RETURN_INTERVAL_S) -> None:
    """Gives free pages of all heaps back to the system now and then, until it is cancelled.

    Does nothing where the C library has no such call.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while True:
        await asyncio.sleep(interval_s)
        if trim is not None:
            await asyncio.to_thread(trim, 0)
