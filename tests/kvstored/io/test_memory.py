import errno
import mmap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kvstored.io import memory
from kvstored.io.memory import AlignedMemory, ScratchPool

PAGE_BYTES = 4096


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)


class RefusingMap(mmap.mmap):
    """A map whose ``madvise`` fails with ``number`` for the advice ``refused``."""

    refused = 0
    number = errno.EINVAL

    def madvise(self, option: int, *rest: int) -> None:
        if option == self.refused:
            raise OSError(self.number, "refused")
        super().madvise(option, *rest)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> type[RefusingMap]:
    monkeypatch.setattr(mmap, "mmap", RefusingMap)
    monkeypatch.setattr(RefusingMap, "refused", 0)
    monkeypatch.setattr(RefusingMap, "number", errno.EINVAL)
    return RefusingMap


@pytest.mark.parametrize("byte_count", [1, PAGE_BYTES, 3 * PAGE_BYTES + 8, 4 * 1024 * 1024])
def test_memory_is_aligned_writable_and_zeroed(byte_count: int) -> None:
    area = AlignedMemory(byte_count)
    assert len(area.view) == byte_count
    assert area.view.format == "B"
    assert address(area.view) % PAGE_BYTES == 0
    assert not any(area.view[:PAGE_BYTES])
    area.view[-1] = 7
    assert area.view[-1] == 7
    area.close()


def test_populates_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, ...]] = []

    class Recording(mmap.mmap):
        def madvise(self, option: int, *rest: int) -> None:
            if rest:
                steps.append(rest)

    monkeypatch.setattr(mmap, "mmap", Recording)
    monkeypatch.setattr(memory, "_POPULATE_BYTES", 2 * PAGE_BYTES)
    AlignedMemory(5 * PAGE_BYTES).close()
    assert steps == [
        (0, 2 * PAGE_BYTES),
        (2 * PAGE_BYTES, 2 * PAGE_BYTES),
        (4 * PAGE_BYTES, PAGE_BYTES),
    ]


@pytest.mark.parametrize("advice", [mmap.MADV_HUGEPAGE, 23])
def test_works_where_the_kernel_knows_less(refusing: type[RefusingMap], advice: int) -> None:
    refusing.refused = advice
    area = AlignedMemory(3 * PAGE_BYTES)
    assert not any(area.view)
    area.close()


@pytest.mark.parametrize("advice", [mmap.MADV_HUGEPAGE, 23])
def test_missing_memory_is_an_error(refusing: type[RefusingMap], advice: int) -> None:
    refusing.refused, refusing.number = advice, errno.ENOMEM
    with pytest.raises(OSError, match="refused"):
        AlignedMemory(PAGE_BYTES)


def test_refuses_no_bytes() -> None:
    with pytest.raises(ValueError, match="at least 1 byte, not 0"):
        AlignedMemory(0)


def test_close_tells_of_slices_in_use() -> None:
    area = AlignedMemory(PAGE_BYTES)
    piece = area.view[:10]
    with pytest.raises(BufferError):
        area.close()
    piece.release()


def test_pool_lends_each_buffer_once() -> None:
    pool = ScratchPool(2 * PAGE_BYTES, 3)
    views = [pool.acquire() for _ in range(3)]
    assert all(len(view) == 2 * PAGE_BYTES for view in views)
    assert len({address(view) for view in views}) == 3
    assert all(address(view) % PAGE_BYTES == 0 for view in views)
    for view in views:
        pool.release(view)
    pool.close()


def test_pool_waits_for_a_buffer() -> None:
    pool = ScratchPool(PAGE_BYTES, 1)
    first = pool.acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.acquire)
        assert not waiting.done()
        pool.release(first)
        second = waiting.result(30)
    assert second is first
    pool.release(second)
    pool.close()


def test_pool_refuses_what_it_did_not_lend() -> None:
    pool = ScratchPool(PAGE_BYTES, 1)
    view = pool.acquire()
    with pytest.raises(ValueError, match="not lent out"):
        pool.release(view[:])
    pool.release(view)
    with pytest.raises(ValueError, match="not lent out"):
        pool.release(view)


def test_pool_does_not_close_while_a_buffer_is_lent() -> None:
    pool = ScratchPool(PAGE_BYTES, 2)
    view = pool.acquire()
    with pytest.raises(ValueError, match="1 buffers of the scratch pool are lent out"):
        pool.close()
    pool.release(view)
    pool.close()


@pytest.mark.parametrize(("page_bytes", "count"), [(0, 1), (4095, 1), (4096, 0)])
def test_pool_refuses_useless_sizes(page_bytes: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"not {count} of {page_bytes} bytes"):
        ScratchPool(page_bytes, count)
