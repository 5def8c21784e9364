"""LMDB's pages: what it writes is sound, and what it cannot have written is refused."""

import struct

import numpy as np
import pytest

from kvstored.format.errors import FormatError
from kvstored.store.index.page_format import (
    BIG_DATA,
    INTEGER_KEYS,
    META_HEAD_BYTES,
    NO_PAGE,
    TREE_BYTES,
    Meta,
    PageKind,
    Tree,
    free_pages,
    newest,
    nodes_of,
    overflow_pages,
)

PAGE_BYTES = 512
EMPTY = struct.pack("<IHHqqqqq", PAGE_BYTES, INTEGER_KEYS, 0, 0, 0, 0, 0, NO_PAGE)


def meta_page(
    transaction: int = 0,
    *,
    kind: int = PageKind.META,
    magic: int = 0xBEEFC0DE,
    version: int = 1,
    page_bytes: int = PAGE_BYTES,
) -> bytes:
    free = struct.pack("<I", page_bytes) + EMPTY[4:]
    header = struct.pack("<q2xH4x", 0, kind)
    return header + struct.pack("<II16x48s48sqq", magic, version, free, EMPTY, 1, transaction)


def test_a_meta_page() -> None:
    meta = Meta.decode(meta_page(4))
    assert (meta.page_bytes, meta.last_page, meta.transaction) == (PAGE_BYTES, 1, 4)
    assert Tree.decode(meta.free, INTEGER_KEYS).counts == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("page", "cause"),
    [
        (meta_page()[: META_HEAD_BYTES - 1], "ends inside"),
        (meta_page(kind=PageKind.LEAF), "none"),
        (meta_page(magic=0), "none"),
        (meta_page(version=2), "none"),
        (meta_page(page_bytes=256), "256 bytes"),
        (meta_page(page_bytes=1000), "1000 bytes"),
    ],
)
def test_a_damaged_meta_page_is_refused(page: bytes, cause: str) -> None:
    with pytest.raises(FormatError, match=cause):
        Meta.decode(page)


def chosen(first: int, second: int) -> int:
    return newest(Meta.decode(meta_page(first)), Meta.decode(meta_page(second))).transaction


def test_the_newest_state_counts() -> None:
    assert [chosen(*numbers) for numbers in ((0, 0), (0, 1), (2, 1), (2, 3))] == [0, 1, 2, 3]


@pytest.mark.parametrize("numbers", [(2, 2), (1, 2), (1, 1), (4, 1), (2, 7), (0, -(1 << 62) + 1)])
def test_states_that_do_not_follow_each_other_are_refused(numbers: tuple[int, int]) -> None:
    """A damaged number would bring back what the last change has replaced."""
    with pytest.raises(FormatError, match="are of changes"):
        chosen(*numbers)


def test_meta_pages_of_different_files_are_refused() -> None:
    with pytest.raises(FormatError, match="different sizes"):
        newest(Meta.decode(meta_page()), Meta.decode(meta_page(page_bytes=4096)))


def tree(*, flags: int = 0, depth: int = 1, root: int = 7) -> bytes:
    return struct.pack("<IHHqqqqq", 0, flags, depth, 1, 2, 3, 4, root)


def test_a_tree() -> None:
    found = Tree.decode(tree())
    assert (found.root, found.depth, found.counts) == (7, 1, (1, 2, 3, 4))
    assert len(tree()) == TREE_BYTES


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (tree()[1:], "of 47 bytes"),
        (tree(flags=4), "flags 4"),
        (tree(depth=33), "33 levels"),
        (tree(depth=0), "0 levels"),
        (tree(root=NO_PAGE), "root -1"),
    ],
)
def test_a_damaged_tree_is_refused(value: bytes, cause: str) -> None:
    with pytest.raises(FormatError, match=cause):
        Tree.decode(value)


Node = tuple[int, int, bytes, bytes]
"""Where it lies, its flags, its key, and its value as it lies on the page."""


def page(number: int, kind: int, nodes: list[Node], *, upper: int, lower: int = 0) -> np.ndarray:
    data = bytearray(PAGE_BYTES)
    lower = lower or 16 + 2 * len(nodes)
    struct.pack_into("<qHHHH", data, 0, number, 0, kind, lower, upper)
    for slot, (start, flags, key, value) in enumerate(nodes):
        struct.pack_into("<H", data, 16 + 2 * slot, start)
        struct.pack_into("<IHH", data, start, len(value), flags, len(key))
        data[start + 8 : start + 8 + len(key) + len(value)] = key + value
    return np.frombuffer(bytes(data), np.uint8).reshape(1, PAGE_BYTES)


LEAVES: list[Node] = [(484, 0, b"key", b"values"), (494 + 8, 0, b"k", b"v")]
"""17 and 10 bytes, each rounded up to an even number; the first lies in front."""
SOUND = page(5, PageKind.LEAF, LEAVES, upper=484)


def test_leaves() -> None:
    pages = np.concatenate([SOUND, page(9, PageKind.LEAF, LEAVES[::-1], upper=484)])
    nodes = nodes_of(pages, np.array([5, 9]), PageKind.LEAF)
    assert nodes.rows.tolist() == [0, 0, 1, 1]
    assert nodes.starts.tolist() == [492, 510, 510, 492]
    assert nodes.key_bytes.tolist() == [3, 1, 1, 3]
    assert nodes.low.tolist() == [6, 1, 1, 6]


def test_a_large_value_leaves_the_number_of_its_page() -> None:
    data = page(5, PageKind.LEAF, [(494, BIG_DATA, b"ab", bytes(8))], upper=494).copy()
    data[0, 494:496] = (0x10, 0x27)
    nodes = nodes_of(data, np.array([5]), PageKind.LEAF)
    assert (nodes.low.tolist(), nodes.flags.tolist()) == ([10_000], [BIG_DATA])


def test_a_branch_names_the_pages_below() -> None:
    data = page(5, PageKind.BRANCH, [(502, 2, b"k", b""), (494, 0, b"", b"")], upper=494).copy()
    data[0, 502:504] = (7, 1)
    data[0, 494] = 9
    nodes = nodes_of(data, np.array([5]), PageKind.BRANCH)
    assert nodes.children.tolist() == [(2 << 32) + 263, 9]


GAP: list[Node] = [(482, 0, b"key", b"values"), LEAVES[1]]
OVER: list[Node] = [(486, 0, b"key", b"values"), LEAVES[1]]


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (page(6, PageKind.LEAF, LEAVES, upper=484), "header"),
        (page(5, PageKind.BRANCH, LEAVES, upper=484), "header"),
        (page(5, PageKind.LEAF, LEAVES, upper=484, lower=21), "header"),
        (page(5, PageKind.LEAF, LEAVES, upper=484, lower=16), "header"),
        (page(5, PageKind.LEAF, LEAVES, upper=484, lower=486), "header"),
        (page(5, PageKind.LEAF, LEAVES, upper=PAGE_BYTES), "header"),
        (page(5, PageKind.LEAF, LEAVES, upper=484, lower=22), "outside of its nodes"),
        (page(5, PageKind.LEAF, LEAVES, upper=486), "outside of its nodes"),
        (page(5, PageKind.LEAF, [(495, 0, b"", b"123456789")], upper=494), "outside of its nodes"),
        (page(5, PageKind.LEAF, LEAVES, upper=482), "gaps"),
        (page(5, PageKind.LEAF, LEAVES[:1], upper=484), "gaps"),
        (page(5, PageKind.LEAF, GAP, upper=482), "gaps"),
        (page(5, PageKind.LEAF, OVER, upper=486), "gaps"),
    ],
)
def test_a_damaged_page_is_refused(data: np.ndarray, cause: str) -> None:
    with pytest.raises(FormatError, match=f"page 5 has.*{cause}"):
        nodes_of(data, np.array([5]), PageKind.LEAF)


def test_a_value_longer_than_any_page_is_refused() -> None:
    data = SOUND.copy()
    data[0, 487] = 0x80
    with pytest.raises(FormatError, match="gaps"):
        nodes_of(data, np.array([5]), PageKind.LEAF)


def test_overflow_pages() -> None:
    header = struct.pack("<q2xHI", 8, PageKind.OVERFLOW, 3)
    assert overflow_pages(header, 8, 3 * PAGE_BYTES - 16, PAGE_BYTES) == 3
    # A shorter value took the place of a longer one.
    assert overflow_pages(header, 8, 1, PAGE_BYTES) == 3
    for number, byte_count in ((9, 1), (8, 3 * PAGE_BYTES - 15)):
        with pytest.raises(FormatError, match=f"page {number} does not begin"):
            overflow_pages(header, number, byte_count, PAGE_BYTES)
    with pytest.raises(FormatError, match="does not begin"):
        overflow_pages(struct.pack("<q2xHI", 8, PageKind.LEAF, 3), 8, 1, PAGE_BYTES)


def free_list(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}q", *words)


KEY = free_list(3)


def test_a_list_of_free_pages() -> None:
    # LMDB leaves room behind a list.
    assert free_pages(KEY, free_list(2, 9, 4, 0), 3).tolist() == [9, 4]
    assert free_pages(KEY, free_list(0), 3).tolist() == []


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        (KEY[1:], free_list(0), "never was"),
        (free_list(0), free_list(0), "never was"),
        (free_list(4), free_list(0), "never was"),
        (KEY, b"", "another length"),
        (KEY, free_list(0)[1:], "another length"),
        (KEY, free_list(2, 9), "another length"),
        (KEY, free_list(-1, 9), "another length"),
        (KEY, free_list(2, 4, 9), "out of order"),
        (KEY, free_list(2, 9, 9), "out of order"),
    ],
)
def test_a_damaged_list_of_free_pages_is_refused(key: bytes, value: bytes, cause: str) -> None:
    with pytest.raises(FormatError, match=cause):
        free_pages(key, value, 3)
