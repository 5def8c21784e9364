"""Copies between slices and the fragments that a placement makes of them."""

import pytest

from kvstored.format.checksum import checksum
from kvstored.store.read.fragments import (
    coalesce,
    fragments_checksum,
    gather,
    is_aligned,
    moves,
    scatter,
)

SOURCE = bytes(range(64))
SCATTERED = ((32, 8), (0, 8))


def test_neighbours_on_both_sides_become_one_copy() -> None:
    assert moves([(0, ((100, 8),)), (8, ((108, 4), (112, 4)))]) == [(0, 100, 16)]


@pytest.mark.parametrize(
    "slices",
    [
        [(0, ((100, 8),)), (16, ((108, 8),))],
        [(0, ((100, 8),)), (8, ((116, 8),))],
        [(0, ((100, 8), (92, 8)))],
    ],
)
def test_gaps_on_either_side_stay(slices: list[tuple[int, tuple[tuple[int, int], ...]]]) -> None:
    assert len(moves(slices)) == 2


def test_slices_without_bytes_are_not_copied() -> None:
    assert moves([(0, ()), (0, ((4, 4),))]) == [(0, 4, 4)]


def test_scatter_and_gather_are_inverse() -> None:
    arena, back = memoryview(bytearray(64)), memoryview(bytearray(16))
    scatter(memoryview(SOURCE), arena, [(16, SCATTERED)])
    assert bytes(arena[32:40]) == SOURCE[16:24]
    assert bytes(arena[:8]) == SOURCE[24:32]
    assert bytes(arena[8:32]) == bytes(24)
    gather(arena, SCATTERED, back)
    assert bytes(back) == SOURCE[16:32]


@pytest.mark.parametrize("fragments", [SCATTERED, ((32, 16),)])
def test_sums_do_not_depend_on_the_cut(fragments: tuple[tuple[int, int], ...]) -> None:
    arena = memoryview(bytearray(64))
    scatter(memoryview(SOURCE), arena, [(0, fragments)])
    assert fragments_checksum(arena, fragments) == checksum(SOURCE[:16])


def test_fragments_that_follow_each_other_are_one_transfer() -> None:
    assert coalesce([(0, 8), (8, 8), (24, 8)]) == [(0, 16), (24, 8)]


@pytest.mark.parametrize(
    ("fragment", "aligned"), [((0, 4096), True), ((512, 4096), False), ((4096, 512), False)]
)
def test_devices_transfer_whole_pages(fragment: tuple[int, int], aligned: bool) -> None:
    assert is_aligned([fragment, (8192, 4096)]) is aligned
