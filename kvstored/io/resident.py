"""Memory that is resident before its first use: a first touch is slower than a disk."""

import errno
import mmap
from collections.abc import Callable

# Missing from the mmap module of Python 3.11; the value is fixed by the Linux ABI (5.14).
_MADV_POPULATE_WRITE = 23


def advise_huge_pages(area: mmap.mmap) -> None:
    """Asks for huge pages, where the system grants them."""
    try:
        area.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        # A kernel without transparent huge pages: small pages serve as well, only slower.
        if error.errno != errno.EINVAL:
            raise


class AbandonedError(Exception):
    """Nobody wants the memory any more."""


def _never() -> bool:
    return False


def _nothing(_byte_count: int) -> None:
    pass


def populate(
    area: mmap.mmap,
    *,
    step_bytes: int,
    is_abandoned: Callable[[], bool] = _never,
    on_resident: Callable[[int], None] = _nothing,
) -> None:
    """Makes every page resident; raises OSError when the system lacks the memory.

    The interpreter lock is held during each step. ``is_abandoned`` is asked before each: raises
    AbandonedError once it says so. ``on_resident`` hears after each how many bytes it brought.
    """
    for start in range(0, len(area), step_bytes):
        if is_abandoned():
            raise AbandonedError
        byte_count = min(step_bytes, len(area) - start)
        try:
            area.madvise(_MADV_POPULATE_WRITE, start, byte_count)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            _touch(area, start, byte_count)
        on_resident(byte_count)


def _touch(area: mmap.mmap, start: int, byte_count: int) -> None:
    """Populates as kernels before 5.14 allow: by writing to each page."""
    for offset in range(start, start + byte_count, mmap.PAGESIZE):
        area[offset] = 0
