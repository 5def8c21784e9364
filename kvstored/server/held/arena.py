"""The arena: sealed shared memory of one session, mapped by the daemon and the client."""

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvstored.io.memory_group import group_room_bytes
from kvstored.io.resident import advise_huge_pages, populate
from kvstored_contract.limits import ALIGNMENT_BYTES, HUGE_PAGE_BYTES

GROUP_SPARE_BYTES = 32 * 1024 * 1024
"""What the DRAM tier and arenas leave of a control group's limit for everything else."""
# The interpreter lock is held during one step.
_POPULATE_BYTES = 4 * 1024 * 1024
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def _never() -> bool:
    return False


class _Making:
    """The memory that arenas in the making still lack, so that no control group counts it yet.

    Thread-safe: many clients connect at one moment after a restart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lacking_bytes = 0

    @contextmanager
    def admitted(self, byte_count: int) -> Iterator[Callable[[int], None]]:
        """Within it an arena is made; what it yields is called with each part that is resident.

        Raises OSError where taking so much memory would get the daemon killed.
        """
        left_bytes = byte_count
        with self._lock:
            room_bytes = group_room_bytes()
            wanted_bytes = self._lacking_bytes + byte_count
            if room_bytes is not None and wanted_bytes > room_bytes - GROUP_SPARE_BYTES:
                raise OSError(
                    errno.ENOMEM, "the memory limit of the daemon's control group is near"
                )
            self._lacking_bytes += byte_count

        def taken(part_bytes: int) -> None:
            nonlocal left_bytes
            with self._lock:
                self._lacking_bytes -= part_bytes
                left_bytes -= part_bytes

        try:
            yield taken
        finally:
            taken(left_bytes)


_MAKING = _Making()


class Arena:
    """A memfd that can never change its size, and the daemon's mapping of it.

    The seals are set before the client sees the descriptor: a client that could
    shrink the file would kill the daemon with SIGBUS. ``view`` is a writable
    memoryview of ``byte_count`` bytes. Every page is resident from the start.

    ``is_on_huge_pages`` tells whether the system granted huge pages, which devices
    transfer into at full speed; they are asked for where whole ones fill the arena and
    ``huge_pages`` allows it.
    """

    def __init__(
        self, byte_count: int, *, huge_pages: bool, is_abandoned: Callable[[], bool] = _never
    ) -> None:
        """Raises OSError when the system lacks the memory, ValueError for a bad size.

        Where ``is_abandoned`` says so meanwhile, nothing is left behind and AbandonedError raised.
        """
        if byte_count < ALIGNMENT_BYTES or byte_count % ALIGNMENT_BYTES:
            raise ValueError(f"an arena has a multiple of {ALIGNMENT_BYTES} bytes: {byte_count}")
        self.byte_count = byte_count
        self.is_on_huge_pages = True
        may_ask = huge_pages and byte_count % HUGE_PAGE_BYTES == 0
        memory = _on_huge_pages(byte_count, is_abandoned) if may_ask else None
        if memory is None:
            self.is_on_huge_pages = False
            with _MAKING.admitted(byte_count) as taken:
                memory = _resident(byte_count, 0, is_abandoned, on_resident=taken)
        self.descriptor, area = memory
        self.view = memoryview(area)

    def close(self) -> None:
        """Closes the descriptor and gives up the mapping.

        The memory itself goes with its last view. No transfer may be in flight.
        """
        os.close(self.descriptor)
        self.view = memoryview(b"")


def _on_huge_pages(
    byte_count: int, is_abandoned: Callable[[], bool]
) -> tuple[int, mmap.mmap] | None:
    """Memory from the system's pool of huge pages; None when that has not enough."""
    try:
        flags = os.MFD_HUGETLB | os.MFD_HUGE_2MB
        # The pool of huge pages is no part of what a control group limits.
        return _resident(byte_count, flags, is_abandoned, on_resident=lambda _: None)
    except OSError:
        return None


def _resident(
    byte_count: int,
    flags: int,
    is_abandoned: Callable[[], bool],
    *,
    on_resident: Callable[[int], None],
) -> tuple[int, mmap.mmap]:
    """A sealed memfd and its mapping with every page resident."""
    descriptor = os.memfd_create("kvstored-arena", flags | os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, byte_count)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        area = mmap.mmap(descriptor, byte_count)
        try:
            advise_huge_pages(area)
            populate(
                area,
                step_bytes=_POPULATE_BYTES,
                is_abandoned=is_abandoned,
                on_resident=on_resident,
            )
        except BaseException:
            # The memory is free at once, and not when the error is forgotten.
            area.close()
            raise
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, area
