"""Aligned buffers with known content."""

import random

from kvstored.io.memory import AlignedMemory

PAGE_BYTES = 4096


def aligned(byte_count: int, *, seed: int | None = None) -> memoryview:
    """A page-aligned buffer: zeroes, or bytes that ``seed`` determines."""
    view = AlignedMemory(byte_count).view
    if seed is not None:
        view[:] = random.Random(seed).randbytes(byte_count)
    return view


def unaligned(byte_count: int) -> memoryview:
    """A buffer that starts 8 bytes behind a page boundary."""
    return AlignedMemory(byte_count + PAGE_BYTES).view[8 : 8 + byte_count]
