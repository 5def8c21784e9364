"""Copies between slices and the fragments that a placement makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.checksum import checksum
from kvstored.store.read import fragments as fragments_module
from kvstored.store.read.fragments import coalesce, fragments_checksum, gather, moves, scatter
from kvstored.store.read.placement import Fragments

SOURCE = bytes(range(64))


def cut(start: int, byte_count: int, *blocks: int) -> Fragments:
    return Fragments(start, byte_count, np.array(blocks, np.int64))


SCATTERED = cut(0, 16, 32, 0)


def test_neighbours_on_both_sides_become_one_copy() -> None:
    assert moves([(0, Fragments(100, 8)), (8, Fragments(108, 8))]) == [(0, 100, 16)]


@pytest.mark.parametrize(
    "slices",
    [
        [(0, Fragments(100, 8)), (16, Fragments(108, 8))],
        [(0, Fragments(100, 8)), (8, Fragments(116, 8))],
    ],
)
def test_gaps_on_either_side_stay(slices: list[tuple[int, Fragments]]) -> None:
    assert len(moves(slices)) == 2


def test_slices_without_bytes_are_not_copied() -> None:
    assert moves([(0, Fragments(4, 0)), (0, Fragments(4, 4)), (9, Fragments(2, 0))]) == [(0, 4, 4)]
    gather(memoryview(bytearray(4)), Fragments(0, 0), memoryview(bytearray(0)))


def test_scatter_and_gather_are_inverse() -> None:
    arena, back = memoryview(bytearray(64)), memoryview(bytearray(16))
    scatter(memoryview(SOURCE), arena, [(16, SCATTERED), (0, Fragments(50, 2))])
    assert bytes(arena[32:40]) == SOURCE[16:24]
    assert bytes(arena[:8]) == SOURCE[24:32]
    assert bytes(arena[50:52]) == SOURCE[:2]
    assert bytes(arena[8:32]) == bytes(24)
    gather(arena, SCATTERED, back)
    assert bytes(back) == SOURCE[16:32]


@given(
    order=st.permutations(range(9)),
    width=st.integers(1, 40),
    start=st.integers(0, 7),
    at_once=st.integers(1, 9),
    copied_at_once_bytes=st.integers(1, 100),
    wide_bytes=st.integers(1, 80),
)
def test_many_fragments_in_any_order_are_copied_in_parts(
    order: list[int],
    width: int,
    start: int,
    at_once: int,
    copied_at_once_bytes: int,
    wide_bytes: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fragments_module, "FRAGMENTS_AT_ONCE", at_once)
        patch.setattr(fragments_module, "WIDE_BYTES", wide_bytes)
        patch.setattr(fragments_module, "COPIED_AT_ONCE_BYTES", copied_at_once_bytes)
        source = np.random.default_rng(1).bytes(9 * width)
        arena, back = memoryview(bytearray(9 * width + 8)), memoryview(bytearray(9 * width))
        fragments = cut(start, 9 * width, *(place * width for place in order))
        pauses: list[None] = []
        scatter(memoryview(source), arena, [(0, fragments)], pause=lambda: pauses.append(None))
        at_once = max(1, min(at_once, copied_at_once_bytes // width))
        assert len(pauses) == (0 if width >= wide_bytes else -(-9 // at_once))
        for number, (offset, byte_count) in enumerate(fragments.pairs()):
            expected = source[number * width :][:byte_count]
            assert bytes(arena[offset : offset + byte_count]) == expected
        assert not any(arena[:start])
        assert not any(arena[start + 9 * width :])
        gather(arena, fragments, back)
        assert bytes(back) == source
        assert fragments_checksum(arena, fragments) == checksum(source)


@pytest.mark.parametrize("fragments", [SCATTERED, Fragments(32, 16)])
def test_sums_do_not_depend_on_the_cut(fragments: Fragments) -> None:
    arena = memoryview(bytearray(64))
    scatter(memoryview(SOURCE), arena, [(0, fragments)])
    assert fragments_checksum(arena, fragments) == checksum(SOURCE[:16])


def test_fragments_that_follow_each_other_are_one_transfer() -> None:
    slices = [Fragments(0, 8), cut(8, 16, 0, 16), Fragments(90, 0)]
    assert coalesce(slices) == [(0, 16), (24, 8)]
