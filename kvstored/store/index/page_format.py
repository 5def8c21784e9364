"""LMDB's pages as bytes: meta pages, pages of its trees, and its lists of free pages. Pure.

Read from the file, because LMDB shows nobody its list of free pages, and takes pages from it
without looking whether they are free. The format is that of version 1 of LMDB's data file on
little-endian machines of 64 bits (`mdb.c`, "Page structures").
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvstored.format.errors import FormatError

META_PAGES: Final = 2
PAGE_HEADER_BYTES: Final = 16
TREE_BYTES: Final = 48
NO_PAGE: Final = -1
"""Root of an empty tree."""
BIG_DATA: Final = 1
"""Flag of an entry whose value lies on overflow pages."""
NAMED_TREE: Final = 2
"""Flag of an entry whose value is a tree."""
INTEGER_KEYS: Final = 8
"""Flag of a tree: LMDB's list of free pages has it, no other."""

_MAGIC = 0xBEEFC0DE
_VERSION = 1
_PAGE_BYTES_RANGE = range(512, 65537)
_DEPTH_MAX = 32
"""LMDB's cursors cannot go deeper."""
_NODE_HEADER_BYTES = 8
_BIG_REFERENCE_BYTES = 8
_STOP_BITS = 20
_STOP_MAX = (1 << _STOP_BITS) - 1
"""Past the end of every page."""
_HEADER = struct.Struct("<q2xH4x")
_OVERFLOW_HEADER = struct.Struct("<q2xHI")
_META = struct.Struct("<II16x48s48sqq")
_PAGE_BYTES = struct.Struct("<I")
_TREE = struct.Struct("<4xHHqqqqq")

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


class PageKind(IntEnum):
    """What a page is for."""

    BRANCH = 1
    LEAF = 2
    OVERFLOW = 4
    META = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The root page of a tree, its levels, its pages by kind and its entries, as LMDB counts."""

    depth: int
    branch_count: int
    leaf_count: int
    overflow_count: int
    entry_count: int
    root: int

    @classmethod
    def decode(cls, value: bytes, flags: int = 0) -> "Tree":
        """Parses a tree that has these flags; raises FormatError."""
        if len(value) != TREE_BYTES:
            raise FormatError(f"a tree of {len(value)} bytes")
        own_flags, depth, branches, leaves, overflows, entries, root = _TREE.unpack(value)
        if own_flags != flags:
            raise FormatError(f"a tree with flags {own_flags}, expected {flags}")
        if depth > _DEPTH_MAX or (depth == 0) != (root == NO_PAGE):
            raise FormatError(f"a tree of {depth} levels with root {root}")
        return cls(
            depth=depth,
            branch_count=branches,
            leaf_count=leaves,
            overflow_count=overflows,
            entry_count=entries,
            root=root,
        )

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Branch pages, leaf pages, overflow pages, entries."""
        return self.branch_count, self.leaf_count, self.overflow_count, self.entry_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """One state of the file: pages of ``page_bytes`` up to number ``last_page``.

    ``free`` is the tree of lists of free pages, ``main`` that of the named trees, both as
    bytes: those of an older state may be anything. ``transaction`` is the number of the
    change that made this state.
    """

    page_bytes: int
    free: bytes
    main: bytes
    last_page: int
    transaction: int

    @classmethod
    def decode(cls, page: bytes) -> "Meta":
        """Parses the head of a meta page; raises FormatError."""
        if len(page) < META_HEAD_BYTES:
            raise FormatError("the file ends inside its meta pages")
        kind = _HEADER.unpack_from(page)[1]
        magic, version, free, main, last_page, transaction = _META.unpack_from(
            page, PAGE_HEADER_BYTES
        )
        if not kind & PageKind.META or (magic, version) != (_MAGIC, _VERSION):
            raise FormatError("a meta page that is none")
        (page_bytes,) = _PAGE_BYTES.unpack_from(free)
        if page_bytes not in _PAGE_BYTES_RANGE or page_bytes & (page_bytes - 1):
            raise FormatError(f"pages of {page_bytes} bytes")
        return cls(
            page_bytes=page_bytes,
            free=free,
            main=main,
            last_page=last_page,
            transaction=transaction,
        )


META_HEAD_BYTES: Final = PAGE_HEADER_BYTES + _META.size
"""What a meta page tells lies in its first bytes."""


def newest(first: Meta, second: Meta) -> Meta:
    """The state that LMDB opens; raises FormatError where they cannot be of one file.

    Changes are numbered without a gap and take turns with the pages, so that the older state
    is the one before. Else a damaged number would bring back that state as the newest.
    """
    if first.page_bytes != second.page_bytes:
        raise FormatError("the meta pages name different sizes of pages")
    numbers = first.transaction, second.transaction
    is_next = numbers[0] % 2 == 0 and numbers[1] % 2 == 1 and abs(numbers[0] - numbers[1]) == 1
    if not is_next and numbers != (0, 0):
        raise FormatError(f"the meta pages are of changes {numbers[0]} and {numbers[1]}")
    return max(first, second, key=lambda meta: meta.transaction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """What lies on some pages of a tree, page after page. All arrays have one item per node.

    ``rows`` is the place of the node's page among the pages, ``starts`` the byte inside it
    where the key begins. ``low`` is the length of the value or, on a branch, the lower half of
    the number of the page below; ``flags`` its upper half, there.
    """

    rows: Numbers
    starts: Numbers
    key_bytes: Numbers
    low: Numbers
    flags: Numbers

    @property
    def children(self) -> Numbers:
        """Of branches: the pages below."""
        return self.low | self.flags << 32


def nodes_of(pages: Bytes, numbers: Numbers, kind: PageKind) -> Nodes:
    """The nodes of pages [n, page bytes] of one kind; ``numbers`` are those of the pages.

    Raises FormatError unless each page says its own number and kind, and its nodes fill it
    from where its free room ends to its end, without a gap: LMDB moves and writes nodes by
    what the page says of itself.
    """
    page_bytes = pages.shape[1]
    words = pages.view("<u2")
    own = np.ascontiguousarray(pages[:, :8]).view("<i8")[:, 0]
    lower, upper = words[:, 6].astype(np.int64), words[:, 7].astype(np.int64)
    is_sound = (own == numbers) & (words[:, 5] == kind) & (lower % 2 == 0)
    is_sound &= (lower > PAGE_HEADER_BYTES) & (lower <= upper) & (upper < page_bytes)
    _refuse(numbers, ~is_sound, f"has not the header of a {kind.name.lower()} page")
    counts = (lower - PAGE_HEADER_BYTES) // 2
    ends = np.cumsum(counts)
    rows = np.repeat(np.arange(len(pages)), counts)
    slots = np.arange(len(rows)) - np.repeat(ends - counts, counts)
    # The words of all pages are one line here, in which each page has its first one.
    line, firsts = words.reshape(-1), rows * (page_bytes // 2)
    starts = line[firsts + PAGE_HEADER_BYTES // 2 + slots].astype(np.int64)
    is_outside = (starts < upper[rows]) | (starts > page_bytes - _NODE_HEADER_BYTES)
    _refuse(numbers[rows], is_outside | (starts % 2 == 1), "has a node outside of its nodes")
    heads = firsts + starts // 2
    fields = [line[heads + place].astype(np.int64) for place in range(4)]
    low, flags, key_bytes = fields[0] | fields[1] << 16, fields[2], fields[3]
    sizes = _NODE_HEADER_BYTES + key_bytes
    if kind is PageKind.LEAF:
        sizes += np.where(flags & BIG_DATA, _BIG_REFERENCE_BYTES, low)
    stops = np.minimum(starts + sizes + sizes % 2, _STOP_MAX)
    places = np.sort(rows << 2 * _STOP_BITS | starts << _STOP_BITS | stops)
    begins, stops = places >> _STOP_BITS & _STOP_MAX, places & _STOP_MAX
    # Each node stops where the next one of its page begins, and the last one with the page.
    wanted = np.append(begins[1:], page_bytes)
    wanted[ends - 1] = page_bytes
    is_gap = stops != wanted
    is_gap[ends - counts] |= begins[ends - counts] != upper
    _refuse(numbers[rows], is_gap, "has nodes with gaps or over each other")
    return Nodes(
        rows=rows, starts=starts + _NODE_HEADER_BYTES, key_bytes=key_bytes, low=low, flags=flags
    )


def overflow_pages(header: bytes, number: int, byte_count: int, page_bytes: int) -> int:
    """On how many pages from ``number`` on a value of so many bytes lies; raises FormatError.

    They may be more than it needs: a shorter value takes the place of a longer one.
    """
    own_number, kind, count = _OVERFLOW_HEADER.unpack(header)
    is_sound = (own_number, kind) == (number, PageKind.OVERFLOW)
    if not is_sound or count * page_bytes < PAGE_HEADER_BYTES + byte_count:
        raise FormatError(f"page {number} does not begin a value of {byte_count} bytes")
    return int(count)


def free_pages(key: bytes, value: bytes, transaction: int) -> Numbers:
    """The pages that one list says to be free since a change; raises FormatError.

    Their count comes first, and then their numbers, largest first.
    """
    if len(key) != 8 or not 1 <= int.from_bytes(key, "little") <= transaction:
        raise FormatError("a list of free pages of a change that never was")
    words = np.frombuffer(value, "<i8") if value and len(value) % 8 == 0 else np.array([-1])
    count = int(words[0])
    if not 0 <= count < len(words):
        raise FormatError("a list of free pages of another length than it says")
    numbers = words[1 : count + 1].astype(np.int64)
    if (numbers[1:] >= numbers[:-1]).any():
        raise FormatError("a list of free pages that is out of order")
    return numbers


def _refuse(numbers: Numbers, is_bad: NDArray[np.bool_], what: str) -> None:
    """Raises FormatError for the first page of which something is bad."""
    if is_bad.any():
        raise FormatError(f"page {int(numbers[is_bad.argmax()])} {what}")
