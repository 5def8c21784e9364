"""Looks through the pages of the index's file: which are in use, and which LMDB takes for free.

A damaged list of free pages is met by writes only. Then it makes the index read-only or, where
it names a page that is in use, costs what lies there. So are the room on a page, and the counts
of a tree. A walk through the entries sees none of that; this sees nothing of their content.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from kvstored.format.errors import FormatError
from kvstored.store.index.failure import MEDIUM_ERRORS, IndexDamagedError, IndexFailure
from kvstored.store.index.page_format import (
    BIG_DATA,
    INTEGER_KEYS,
    META_HEAD_BYTES,
    META_PAGES,
    NAMED_TREE,
    PAGE_HEADER_BYTES,
    Bytes,
    Meta,
    Nodes,
    Numbers,
    PageKind,
    Tree,
    free_pages,
    newest,
    nodes_of,
    overflow_pages,
)

_PAGES_AT_ONCE = 1024
_GAP_PAGES_MAX = 8
"""So many pages that nobody wants are read with those around them."""
_FREE_PAGE_BYTES = 8
"""What a list says of one free page."""

OnLeaves = Callable[[Bytes, Nodes], None]


def check_pages(file: Path) -> None:
    """Walks the pages of an LMDB file that nobody writes to meanwhile.

    Reads it, and never through a map: damage raises IndexDamagedError and ends no process;
    reads that fail for other reasons raise IndexFailure. Raises OSError where the file cannot
    be opened.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_PageFile(descriptor))
    except (FormatError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in MEDIUM_ERRORS:
            raise IndexFailure(f"cannot read {file}: {error}") from error
        raise IndexDamagedError(
            f"the pages of {file} are damaged: {error}; rebuild the index"
        ) from error
    finally:
        os.close(descriptor)


def _check(file: "_PageFile") -> None:
    meta, walk = file.meta, _Walk(file)
    free: list[Numbers] = []

    def take_lists(pages: Bytes, nodes: Nodes) -> None:
        refuse_tables(pages, nodes)
        for key, value in walk.entries(pages, nodes):
            free.append(free_pages(key, value, meta.transaction))

    def take_tables(pages: Bytes, nodes: Nodes) -> None:
        if (nodes.flags != NAMED_TREE).any():
            raise FormatError("an entry beside the tables is no table")
        tables.extend(Tree.decode(value) for _, value in walk.entries(pages, nodes))

    def refuse_tables(_: Bytes, nodes: Nodes) -> None:
        if (nodes.flags & NAMED_TREE).any():
            raise FormatError("a table inside a table")

    tables: list[Tree] = []
    walk.tree(Tree.decode(meta.free, INTEGER_KEYS), take_lists)
    walk.tree(Tree.decode(meta.main), take_tables)
    for table in tables:
        walk.tree(table, refuse_tables)
    for numbers in free:
        walk.take(numbers)
    walk.check_unwritten()


class _PageFile:
    """The newest state of a file, and its pages. Raises FormatError and OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        first = Meta.decode(os.pread(descriptor, META_HEAD_BYTES, 0))
        second = Meta.decode(os.pread(descriptor, META_HEAD_BYTES, first.page_bytes))
        self.meta = newest(first, second)
        byte_count = os.fstat(descriptor).st_size
        self.page_count = byte_count // self.meta.page_bytes
        """Whole pages that were ever written."""
        # The others are free, and their numbers in the file.
        if not 0 <= self.meta.last_page <= self.page_count + byte_count // _FREE_PAGE_BYTES:
            raise FormatError(f"{self.meta.last_page + 1} pages in a file of {byte_count} bytes")

    def read_pages(self, numbers: Numbers) -> Iterator[tuple[Bytes, Numbers]]:
        """Pages by ascending number, neighbours together: [n, page bytes], and their numbers."""
        page_bytes = self.meta.page_bytes
        is_new = np.diff(numbers) > _GAP_PAGES_MAX
        is_new |= np.diff(numbers // _PAGES_AT_ONCE) > 0
        for group in np.split(numbers, np.flatnonzero(is_new) + 1):
            first, count = int(group[0]), int(group[-1] - group[0]) + 1
            found = self.read(first * page_bytes, count * page_bytes)
            pages = np.frombuffer(found, np.uint8).reshape(count, page_bytes)
            yield pages if len(group) == count else pages[group - first], group

    def read(self, offset: int, byte_count: int) -> bytes:
        """Bytes of the file."""
        found = os.pread(self._descriptor, byte_count, offset)
        if len(found) != byte_count:
            raise FormatError("the file ends before its pages")
        return found


class _Walk:
    """Takes each page once, be it as part of a tree or as free. Raises FormatError."""

    def __init__(self, file: _PageFile) -> None:
        self._file = file
        self._is_taken = np.zeros(file.meta.last_page + 1, np.bool_)
        self._is_taken[:META_PAGES] = True

    def take(self, numbers: Numbers) -> None:
        """Takes pages, in any order."""
        if not len(numbers):
            return
        last_page = self._file.meta.last_page
        if not META_PAGES <= numbers.min() <= numbers.max() <= last_page:
            raise FormatError(f"a page that is not among pages {META_PAGES} to {last_page}")
        ordered = np.sort(numbers)
        is_twice = self._is_taken[ordered]
        is_twice[1:] |= ordered[1:] == ordered[:-1]
        if is_twice.any():
            raise FormatError(f"page {int(ordered[is_twice.argmax()])} is used twice, or also free")
        self._is_taken[ordered] = True

    def check_unwritten(self) -> None:
        """Raises FormatError unless every page past the end of the file is free."""
        if not self._is_taken[self._file.page_count :].all():
            raise FormatError("the file is shorter than its pages")

    def tree(self, tree: Tree, on_leaves: OnLeaves) -> None:
        """Takes the pages of a tree, level by level; shows its leaves."""
        level = np.array([tree.root] if tree.depth else [], np.int64)
        branch_count, leaf_count, overflow_count, entry_count = 0, 0, 0, 0
        for _ in range(tree.depth - 1):
            self.take(level)
            branch_count += len(level)
            runs = self._file.read_pages(np.sort(level))
            level = np.concatenate([nodes_of(*run, PageKind.BRANCH).children for run in runs])
        self.take(level)
        for pages, numbers in self._file.read_pages(np.sort(level)) if tree.depth else ():
            nodes = nodes_of(pages, numbers, PageKind.LEAF)
            leaf_count += len(numbers)
            entry_count += len(nodes.rows)
            overflow_count += self._take_values(pages, nodes)
            on_leaves(pages, nodes)
        counts = branch_count, leaf_count, overflow_count, entry_count
        if counts != tree.counts:
            raise FormatError(f"a tree of {counts} pages and entries that claims {tree.counts}")

    def entries(self, pages: Bytes, nodes: Nodes) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each node of some leaves, after their tree has taken its pages."""
        for place in range(len(nodes.rows)):
            row, start = int(nodes.rows[place]), int(nodes.starts[place])
            middle, byte_count = start + int(nodes.key_bytes[place]), int(nodes.low[place])
            page, key = pages[row], pages[row, start:middle].tobytes()
            if nodes.flags[place] & BIG_DATA:
                offset = _reference(page, middle) * self._file.meta.page_bytes + PAGE_HEADER_BYTES
                yield key, self._file.read(offset, byte_count)
            else:
                yield key, page[middle : middle + byte_count].tobytes()

    def _take_values(self, pages: Bytes, nodes: Nodes) -> int:
        """Takes the overflow pages of leaves; returns how many they are."""
        if (nodes.flags > max(BIG_DATA, NAMED_TREE)).any():
            raise FormatError("an entry with flags that no table has")
        page_bytes, total = self._file.meta.page_bytes, 0
        for place in np.flatnonzero(nodes.flags & BIG_DATA):
            middle = int(nodes.starts[place] + nodes.key_bytes[place])
            number = _reference(pages[nodes.rows[place]], middle)
            self.take(np.array([number]))
            header = self._file.read(number * page_bytes, PAGE_HEADER_BYTES)
            count = overflow_pages(header, number, int(nodes.low[place]), page_bytes)
            # A damaged count names no more pages than there are before it is refused.
            self.take(np.arange(number + 1, min(number + count, len(self._is_taken) + 1)))
            total += count
        return total


def _reference(page: Bytes, start: int) -> int:
    """The number of the first overflow page of a value."""
    return int.from_bytes(page[start : start + 8].tobytes(), "little", signed=True)
