"""How much room chunks take on devices and in DRAM. Pure.

It is computed here from what the documentation says of the formats, and not by the
daemon's code: a benchmark knows the daemon from outside only.
"""

from collections import Counter
from collections.abc import Iterable

from benchmarks.workload import MIB, Workload

SLAB_BYTES = 64 * MIB
"""The daemon's default."""
_PAGE_BYTES = 4096
_HEAD_BYTES = MIB
"""In front of the first slab; behind the last one is one page."""


def slab_count(workload: Workload, chunk_count: int, slab_bytes: int) -> int:
    """Slabs that so many chunks fill: each holds a page and whole chunks with a page each."""
    per_slab = (slab_bytes - _PAGE_BYTES) // (workload.chunk_bytes + _PAGE_BYTES)
    return -(-chunk_count // per_slab)


def device_bytes(
    stored: Iterable[Workload], device_count: int, slab_bytes: int = SLAB_BYTES
) -> int:
    """Size of each device for all of ``stored`` at once, with one slab to spare."""
    slabs = 1
    for shape, count in Counter(stored).items():
        share = -(-shape.chunk_count // device_count) * count
        slabs += slab_count(shape, share, slab_bytes)
    return _HEAD_BYTES + slabs * slab_bytes + _PAGE_BYTES


def dram_bytes(held: Iterable[Workload], slab_bytes: int = SLAB_BYTES) -> int:
    """Size of a DRAM tier that holds all of ``held`` at once."""
    slabs = sum(
        slab_count(shape, shape.chunk_count * count, slab_bytes)
        for shape, count in Counter(held).items()
    )
    return slabs * slab_bytes
