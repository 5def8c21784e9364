"""The pages of an index's file: sound however it was changed, and damage that no read meets.

Fails when ``_check`` takes no pages of the lists of free ones (seen: nothing raised for a list
that names a page in use), ``_Walk.tree`` does not compare the counts (seen: nothing raised for
another count of entries), ``_Walk.check_unwritten`` does nothing (seen: nothing raised for a
file with more pages than it has bytes for), and when ``_PageFile`` does not bound the last page
(seen: no memory for a map of 1 TiB).
"""

import errno
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.format.slice_lengths import SliceLengths
from kvstored.store.index.failure import IndexDamagedError, IndexFailure
from kvstored.store.index.index import DATA_FILE, Index, IndexChange
from kvstored.store.index.page_format import INTEGER_KEYS, Meta, Tree, newest
from kvstored.store.index.page_walk import check_pages
from tests.kvstored.store.index_stores import LAYOUT_ID, NAMESPACE_ID, meta, record_at
from tests.support.memory_folder import memory_folder
from tests.support.seeds import seed

MAP_BYTES = 64 * 1024 * 1024
PAGE = 4096
META_FREE, META_MAIN, META_LAST = 40, 88, 136
"""Where a meta page has its trees and the number of the last page."""
TREE_FLAGS, TREE_DEPTH, TREE_LEAVES, TREE_ENTRIES, TREE_ROOT = 4, 6, 16, 32, 40


def chunk(number: int) -> ChunkId:
    return ChunkId(NAMESPACE_ID, random.Random(number).randbytes(32))


def sequence_of(key_count: int) -> SequenceRecord:
    keys = tuple(number.to_bytes(32, "big") for number in range(key_count))
    return SequenceRecord(layout_id=LAYOUT_ID, keys=keys)


def some_change(choice: random.Random) -> IndexChange:
    """Of every table something; large sequences lie on pages of their own."""
    puts = tuple(
        (chunk(number), record_at(Extent(0, 8192 + 4096 * number, 4096)))
        for number in choice.sample(range(3000), choice.choice((1, 30, 400)))
    )
    lengths = SliceLengths(lengths=(5,) * 40, header_checksum=puts[0][1].header_checksum)
    names = [f"s{choice.randrange(8)}" for _ in range(2)]
    return IndexChange(
        puts=puts,
        deletes=tuple(map(chunk, choice.sample(range(3000), choice.choice((0, 10, 600))))),
        lengths=tuple((name, lengths) for name, _ in puts[::2]),
        quarantines=puts[:1],
        sequence_deletes=((NAMESPACE_ID, names[0]),),
        sequence_puts=((NAMESPACE_ID, names[1], sequence_of(choice.choice((1, 60, 150, 2000)))),),
        meta=meta(),
    )


def test_an_index_is_sound_after_every_change(tmp_path: Path) -> None:
    choice = random.Random(seed())
    index = Index.open(tmp_path, map_bytes=MAP_BYTES)
    for number in range(40):
        check_pages(tmp_path / DATA_FILE)
        if number == 20:
            index.clear_chunks()
        index.apply(some_change(choice))
        if choice.randrange(8) == 0:
            index.close()
            index = Index.open(tmp_path, map_bytes=MAP_BYTES)
    index.close()
    check_pages(tmp_path / DATA_FILE)


def test_a_list_of_free_pages_on_pages_of_its_own(tmp_path: Path) -> None:
    index = Index.open(tmp_path, map_bytes=MAP_BYTES)
    record = record_at(Extent(0, 8192, 4096))
    index.apply(IndexChange(puts=tuple((chunk(number), record) for number in range(16_000))))
    index.clear_chunks()
    index.close()
    file = IndexFile(tmp_path / DATA_FILE)
    assert Tree.decode(file.meta[0].free, INTEGER_KEYS).overflow_count
    check_pages(file.path)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The file of an index whose process has ended, to be damaged."""

    path: Path

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    def write(self, offset: int, value: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(value)

    @property
    def meta(self) -> tuple[Meta, int]:
        """The newest state, and where its page begins."""
        metas = [Meta.decode(self.data[start : start + PAGE]) for start in (0, PAGE)]
        found = newest(*metas)
        return found, PAGE * metas.index(found)

    @property
    def free_root(self) -> int:
        return Tree.decode(self.meta[0].free, INTEGER_KEYS).root

    def write_meta(self, offset: int, value: bytes) -> None:
        self.write(self.meta[1] + offset, value)

    @property
    def first_list(self) -> int:
        """Where the oldest list of free pages begins: its count."""
        start = PAGE * self.free_root
        (node,) = struct.unpack_from("<H", self.data, start + 16)
        return start + node + 16

    def table(self, name: bytes) -> tuple[int, Tree]:
        """Where the tree of a table lies in the file, and what it is."""
        root = PAGE * Tree.decode(self.meta[0].main).root
        start = self.data.index(name, root, root + PAGE) + len(name)
        return start, Tree.decode(self.data[start : start + 48])


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """An index with free pages, and branches and overflow pages in its trees."""
    with memory_folder() as path:
        index = Index.open(path, map_bytes=MAP_BYTES)
        choice = random.Random(1)
        for _ in range(12):
            index.apply(some_change(choice))
        index.apply(IndexChange(sequence_puts=((NAMESPACE_ID, "large", sequence_of(2000)),)))
        index.close()
        yield path / DATA_FILE


@pytest.fixture
def file(template: Path, tmp_path: Path) -> IndexFile:
    return IndexFile(Path(shutil.copy(template, tmp_path)))


def number(value: int) -> bytes:
    return struct.pack("<q", value)


def a_free_page_is_in_use(file: IndexFile) -> None:
    file.write(file.first_list, number(1) + number(file.table(b"chunks")[1].root))


def a_free_page_is_a_meta_page(file: IndexFile) -> None:
    file.write(file.first_list, number(1) + number(1))


def a_free_page_is_behind_the_file(file: IndexFile) -> None:
    file.write(file.first_list, number(1) + number(1 << 40))


def the_count_of_free_pages(file: IndexFile) -> None:
    file.write(file.first_list, number(1 << 30))


def the_root_of_the_free_pages(file: IndexFile) -> None:
    file.write_meta(META_FREE + TREE_ROOT, number(file.table(b"chunks")[1].root))


def the_kind_of_a_page(file: IndexFile) -> None:
    file.write(PAGE * file.free_root + 10, b"\x01")


def the_number_of_a_page(file: IndexFile) -> None:
    file.write(PAGE * file.table(b"chunks")[1].root, number(3))


def the_room_on_a_page(file: IndexFile) -> None:
    start = PAGE * file.table(b"meta")[1].root + 14
    (upper,) = struct.unpack_from("<H", file.data, start)
    file.write(start, struct.pack("<H", upper - 64))


def the_entries_of_a_table(file: IndexFile) -> None:
    start, tree = file.table(b"chunks")
    file.write(start + TREE_ENTRIES, number(tree.entry_count + 1))


def the_pages_of_a_table(file: IndexFile) -> None:
    start, tree = file.table(b"sequences")
    file.write(start + TREE_LEAVES, number(tree.leaf_count - 1))


def the_levels_of_a_table(file: IndexFile) -> None:
    start, tree = file.table(b"chunks")
    file.write(start + TREE_DEPTH, struct.pack("<H", tree.depth + 1))


def the_flags_of_a_table(file: IndexFile) -> None:
    file.write(file.table(b"chunks")[0] + TREE_FLAGS, b"\x02")


def no_table(file: IndexFile) -> None:
    file.write(file.table(b"chunks")[0] - len(b"chunks") - 4, b"\x00")


def the_kind_of_an_entry(file: IndexFile) -> None:
    start = PAGE * file.table(b"meta")[1].root
    (node,) = struct.unpack_from("<H", file.data, start + 16)
    file.write(start + node + 4, b"\x02")


def an_unknown_kind_of_entry(file: IndexFile) -> None:
    start = PAGE * file.table(b"meta")[1].root
    (node,) = struct.unpack_from("<H", file.data, start + 16)
    file.write(start + node + 4, b"\x08")


def every_page_of_values_is_longer(file: IndexFile) -> None:
    data = bytearray(file.data)
    for start in range(2 * PAGE, len(data), PAGE):
        if struct.unpack_from("<qHH", data, start) == (start // PAGE, 0, 4):
            struct.pack_into("<I", data, start + 12, 1 << 31)
    file.path.write_bytes(data)


def the_last_page_is_too_small(file: IndexFile) -> None:
    file.write_meta(META_LAST, number(file.meta[0].last_page // 2))


def the_last_page_is_too_large(file: IndexFile) -> None:
    file.write_meta(META_LAST, number(file.meta[0].last_page + 100))


def the_last_page_is_enormous(file: IndexFile) -> None:
    """Bug: LMDB had no memory for such a map, and the start was refused for good."""
    file.write_meta(META_LAST, number(1 << 40))


def the_last_page_is_negative(file: IndexFile) -> None:
    file.write_meta(META_LAST, number(-2))


def the_file_is_cut(file: IndexFile) -> None:
    os.truncate(file.path, PAGE * (file.meta[0].last_page // 2))


def the_file_is_empty(file: IndexFile) -> None:
    os.truncate(file.path, 0)


DAMAGES: list[tuple[Callable[[IndexFile], None], str]] = [
    (a_free_page_is_in_use, "used twice, or also free"),
    (a_free_page_is_a_meta_page, "not among pages"),
    (a_free_page_is_behind_the_file, "not among pages"),
    (the_count_of_free_pages, "another length"),
    (the_root_of_the_free_pages, "page"),
    (the_kind_of_a_page, "header of a leaf page"),
    (the_number_of_a_page, "header of a branch page"),
    (the_room_on_a_page, "gaps"),
    (the_entries_of_a_table, "claims"),
    (the_pages_of_a_table, "claims"),
    (the_levels_of_a_table, "header of a branch page"),
    (the_flags_of_a_table, "flags 2"),
    (no_table, "is no table"),
    (the_kind_of_an_entry, "table inside a table"),
    (an_unknown_kind_of_entry, "flags that no table has"),
    (every_page_of_values_is_longer, "not among pages|used twice"),
    (the_last_page_is_too_small, "not among pages"),
    (the_last_page_is_too_large, "shorter than its pages"),
    (the_last_page_is_enormous, "pages in a file of"),
    (the_last_page_is_negative, "pages in a file of"),
    (the_file_is_cut, "ends before its pages"),
    (the_file_is_empty, "ends inside its meta pages"),
]


@pytest.mark.parametrize(
    ("damage", "cause"), DAMAGES, ids=lambda value: getattr(value, "__name__", "")
)
def test_damage_is_found(file: IndexFile, damage: Callable[[IndexFile], None], cause: str) -> None:
    check_pages(file.path)
    damage(file)
    with pytest.raises(IndexDamagedError, match=f"pages of .*({cause})"):
        check_pages(file.path)


def test_the_older_state_may_be_anything(file: IndexFile) -> None:
    """The next change overwrites it."""
    older = PAGE - file.meta[1]
    file.write(older + META_FREE + TREE_FLAGS, bytes(44))
    check_pages(file.path)


@pytest.mark.parametrize(
    ("number", "is_damage"), [(errno.EIO, True), (errno.ENOMEM, False), (errno.ESTALE, False)]
)
def test_reads_that_fail_are_damage_only_if_the_medium_says_so(
    file: IndexFile, monkeypatch: pytest.MonkeyPatch, number: int, is_damage: bool
) -> None:
    """A sound index was set aside because the system was short of memory for a moment."""

    def fail(*_: object) -> bytes:
        raise OSError(number, "planned")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(IndexFailure, match="planned") as raised:
        check_pages(file.path)
    assert isinstance(raised.value, IndexDamagedError) == is_damage


def test_a_file_that_is_not_there_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_pages(tmp_path / DATA_FILE)
