"""Huge pages for the arenas of a benchmark, granted as the administrator would grant them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvstored_contract.limits import HUGE_PAGE_BYTES

POOL = Path("/proc/sys/vm/nr_overcommit_hugepages")
"""How many huge pages the kernel may hand out beyond those that it keeps ready."""


@contextmanager
def huge_pages(byte_count: int, pool: Path = POOL) -> Iterator[bool]:
    """Lets memory of ``byte_count`` bytes lie on huge pages meanwhile.

    Yields whether it may: without the right to change the setting (root), what it says
    stays. At the end the setting is what it was.
    """
    page_count = -(-byte_count // HUGE_PAGE_BYTES)
    try:
        before = int(pool.read_text())
    except OSError:
        yield False
        return
    if before >= page_count:
        yield True
        return
    try:
        pool.write_text(f"{page_count}\n")
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        pool.write_text(f"{before}\n")
