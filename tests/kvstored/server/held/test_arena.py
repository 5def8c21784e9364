"""The arena: sealed, resident, and alive as long as a view of it."""

import errno
import mmap
import os
import threading
from collections.abc import Callable

import pytest

from kvstored.io.resident import AbandonedError
from kvstored.server.held import arena as arena_module
from kvstored.server.held.arena import GROUP_SPARE_BYTES, Arena
from kvstored_contract.limits import HUGE_PAGE_BYTES
from tests.support.descriptors import open_descriptors

PAGE = 4096


@pytest.mark.parametrize("byte_count", [0, 1, PAGE + 1])
def test_sizes_that_are_no_pages_are_refused(byte_count: int) -> None:
    with pytest.raises(ValueError, match="multiple"):
        Arena(byte_count, huge_pages=True)


@pytest.mark.parametrize("byte_count", [0, PAGE, 16 * PAGE])
def test_its_size_cannot_be_changed(byte_count: int) -> None:
    arena = Arena(4 * PAGE, huge_pages=True)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.descriptor, byte_count)
    assert os.fstat(arena.descriptor).st_size == 4 * PAGE
    arena.close()


def test_both_sides_see_the_same_bytes() -> None:
    arena = Arena(2 * PAGE, huge_pages=True)
    with mmap.mmap(arena.descriptor, 2 * PAGE) as other:
        other[PAGE : PAGE + 5] = b"hello"
        assert bytes(arena.view[PAGE : PAGE + 5]) == b"hello"
        arena.view[:3] = b"yes"
        assert other[:3] == b"yes"
    arena.close()


def test_every_page_is_resident_from_the_start() -> None:
    arena = Arena(64 * PAGE, huge_pages=True)
    assert os.fstat(arena.descriptor).st_blocks * 512 >= 64 * PAGE
    arena.close()


def test_views_outlive_close() -> None:
    arena = Arena(PAGE, huge_pages=True)
    view = arena.view[:8]
    arena.close()
    view[:] = b"12345678"
    assert bytes(view) == b"12345678"


class OldKernelMap(mmap.mmap):
    """A mapping on a kernel that knows neither advice."""

    def madvise(self, *_: int) -> None:
        raise OSError(errno.EINVAL, "unknown advice")


class FullMap(mmap.mmap):
    """A mapping that cannot be populated."""

    def madvise(self, option: int, *_: int) -> None:
        raise OSError(errno.ENOMEM, "no memory")


def test_old_kernels_populate_by_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "mmap", OldKernelMap)
    arena = Arena(8 * PAGE, huge_pages=True)
    assert os.fstat(arena.descriptor).st_blocks * 512 >= 8 * PAGE
    arena.close()


@pytest.mark.parametrize("is_granted", [True, False])
def test_huge_pages_where_the_system_grants_them(
    monkeypatch: pytest.MonkeyPatch, is_granted: bool
) -> None:
    create, asked = os.memfd_create, []

    def pool(name: str, flags: int) -> int:
        asked.append(bool(flags & os.MFD_HUGETLB))
        if asked[-1] and not is_granted:
            raise OSError(errno.ENOMEM, "no huge pages")
        return create(name, flags & ~(os.MFD_HUGETLB | os.MFD_HUGE_2MB))

    monkeypatch.setattr(os, "memfd_create", pool)
    arena = Arena(HUGE_PAGE_BYTES, huge_pages=True)
    assert arena.is_on_huge_pages is is_granted
    assert asked == [True] if is_granted else [True, False]
    assert len(arena.view) == HUGE_PAGE_BYTES
    arena.close()


@pytest.mark.parametrize(
    ("byte_count", "huge_pages"), [(HUGE_PAGE_BYTES + PAGE, True), (HUGE_PAGE_BYTES, False)]
)
def test_arenas_that_cannot_or_must_not_have_huge_pages_ask_for_none(
    monkeypatch: pytest.MonkeyPatch, byte_count: int, huge_pages: bool
) -> None:
    monkeypatch.delattr(os, "MFD_HUGETLB")
    arena = Arena(byte_count, huge_pages=huge_pages)
    assert not arena.is_on_huge_pages
    arena.close()


def test_lack_of_memory_is_an_error_and_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "mmap", FullMap)
    before = open_descriptors()
    with pytest.raises(OSError, match="no memory"):
        Arena(PAGE, huge_pages=True)
    assert not open_descriptors() - before


def test_arena_that_nobody_wants_any_more_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_POPULATE_BYTES", PAGE)
    before, asked = open_descriptors(), []

    def is_abandoned() -> bool:
        asked.append(True)
        return len(asked) == 3

    with pytest.raises(AbandonedError):
        Arena(8 * PAGE, huge_pages=True, is_abandoned=is_abandoned)
    assert len(asked) == 3
    assert not open_descriptors() - before


def test_arenas_made_at_one_moment_passed_the_check_of_memory_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: each saw the memory that the others were about to take, and the kernel killed."""
    size = 2 * arena_module._POPULATE_BYTES
    begun, goes_on = threading.Event(), threading.Event()
    room = [GROUP_SPARE_BYTES + 3 * size // 2]
    monkeypatch.setattr(arena_module, "group_room_bytes", lambda: room[0])

    def populate(area: mmap.mmap, *, on_resident: Callable[[int], None], **_: object) -> None:
        begun.set()
        assert goes_on.wait(10)
        for _part in range(2):
            room[0] -= len(area) // 2
            on_resident(len(area) // 2)

    monkeypatch.setattr(arena_module, "populate", populate)
    made: list[Arena] = []
    thread = threading.Thread(target=lambda: made.append(Arena(size, huge_pages=False)))
    thread.start()
    assert begun.wait(10)
    with pytest.raises(OSError, match="limit of the daemon's control group"):
        Arena(size, huge_pages=False)
    goes_on.set()
    thread.join()
    made.append(Arena(size // 2, huge_pages=False))
    assert arena_module._MAKING._lacking_bytes == 0
    for arena in made:
        arena.close()
