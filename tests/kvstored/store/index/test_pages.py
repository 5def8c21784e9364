"""How much of a mapped file stays resident."""

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.store.index import pages as index_pages
from kvstored.store.index.index import DATA_FILE, Index
from kvstored.store.index.pages import FAULT_BYTES, STRETCH_BYTES, MappedPages, find_mapping
from tests.kvstored.store.index_stores import MAP_BYTES

FILE_BYTES = 4 * STRETCH_BYTES
BOUND_BYTES = FILE_BYTES // 2
HUGE_PAGE_BYTES = 2 * 1024 * 1024


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mapped"
    path.write_bytes(b"\x5a" * FILE_BYTES)
    return path


@pytest.fixture
def mapped(file: Path) -> Iterator[mmap.mmap]:
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), FILE_BYTES) as memory:
        yield memory


def touch(memory: mmap.mmap) -> None:
    """Makes every page resident."""
    assert memory[::4096] == b"\x5a" * (FILE_BYTES // 4096)


def resident_bytes(path: Path) -> int:
    """What of the map of a file is resident, by the kernel's account."""
    text = Path("/proc/self/smaps").read_text()
    _, _, rest = text.partition(f" {path}\n")
    match = re.search(r"^Rss:\s+(\d+) kB", rest, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024


def test_a_round_of_look_ups_releases_everything_once(file: Path, mapped: mmap.mmap) -> None:
    pages = MappedPages(file, resident_bytes_max=BOUND_BYTES)
    touch(mapped)
    assert resident_bytes(file) == FILE_BYTES
    round_lookups = BOUND_BYTES // FAULT_BYTES
    for _ in range(round_lookups):
        pages.touched(1)
    assert resident_bytes(file) == 0
    touch(mapped)
    pages.touched(round_lookups // 2)
    # The kernel may have mapped huge pages, which it drops whole.
    rest = FILE_BYTES // 2
    assert rest - HUGE_PAGE_BYTES <= resident_bytes(file) <= rest


def test_a_small_file_stays(file: Path, mapped: mmap.mmap) -> None:
    pages = MappedPages(file, resident_bytes_max=FILE_BYTES)
    touch(mapped)
    for _ in range(10):
        pages.touched(FILE_BYTES // FAULT_BYTES)
    assert resident_bytes(file) == FILE_BYTES


@pytest.mark.parametrize("file_pages", [3, 5000])
def test_nothing_is_released_behind_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_pages: int
) -> None:
    """What lies there may be memory of this process that would be lost."""
    file = tmp_path / "mapped"
    file.write_bytes(bytes(3 * 4096 + STRETCH_BYTES))
    released: list[tuple[int, int]] = []
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 3 * 4096 + STRETCH_BYTES):
        pages = MappedPages(file, resident_bytes_max=FAULT_BYTES)
        mapping = find_mapping(file)
        monkeypatch.setattr(
            pages, "_madvise", lambda address, size, _: released.append((address.value, size.value))
        )
        opened.truncate(file_pages * 4096 + STRETCH_BYTES)
        for count in (1, 3, 70, 7, 500):
            pages.touched(count)
    assert mapping is not None
    start, map_bytes = mapping
    assert released
    assert all(start <= address for address, _ in released)
    assert all(address + size <= start + map_bytes for address, size in released)
    assert {address for address, _ in released} >= {start}


def test_nothing_is_released_after_the_end(file: Path, mapped: mmap.mmap) -> None:
    pages = MappedPages(file, resident_bytes_max=FAULT_BYTES)
    touch(mapped)
    pages.close()
    pages.touched(10_000)
    assert resident_bytes(file) == FILE_BYTES


def test_the_map_of_an_index_is_found(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    try:
        mapping = find_mapping(tmp_path / "index" / DATA_FILE)
        assert mapping is not None
        assert mapping[1] == MAP_BYTES
        assert index._tables.pages._mapping == mapping
    finally:
        index.close()
    assert index._tables.pages._mapping is None


def test_without_a_map_or_its_list_nothing_happens(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_mapping(file) is None
    MappedPages(file).touched(1 << 30)
    monkeypatch.setattr(index_pages, "_MAPS", tmp_path / "nowhere")
    assert find_mapping(file) is None
