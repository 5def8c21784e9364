"""Copies of rows from a snapshot into frames, in as few calls as the rows allow. Pure.

A step of a batch has a thousand small rows (sequences times layers), which cost more to
name one by one in Python than to copy. All layers of all short ranges therefore go in one
scatter for each ``RowBlock`` (HCache, section 4.2.2: one copy for each batch). The
copies release the interpreter lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from kvstored.store.write.append_rows import RowBlock

LONG_RANGE_TOKENS = 8
"""From so many tokens on a range is copied by a call of its own."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RowRange:
    """Consecutive rows that go to consecutive tokens of one frame.

    ``frame_offset`` is where the frame begins in the memory of all frames.
    """

    frame_offset: int
    first_token: int
    first_row: int
    token_count: int


def copy_rows(
    *, snapshot: Bytes, memory: Bytes, blocks: Sequence[RowBlock], ranges: Sequence[RowRange]
) -> None:
    """Copies every range of every block.

    ``snapshot`` (uint8, contiguous) begins with the snapshot's first byte, ``memory`` (uint8,
    contiguous) is that of all frames. The caller has checked that the blocks lie in
    ``snapshot`` and the frames in ``memory``: strides bypass numpy's own checks.
    """
    short = [one for one in ranges if one.token_count < LONG_RANGE_TOKENS]
    for block in blocks:
        for one in ranges:
            if one.token_count >= LONG_RANGE_TOKENS:
                _copy_range(snapshot, memory, block, one)
        if short:
            _scatter(snapshot, memory, block, short)


def _copy_range(snapshot: Bytes, memory: Bytes, block: RowBlock, one: RowRange) -> None:
    shape = (block.layer_count, one.token_count * block.row_bytes)
    source = snapshot[block.snapshot_offset + one.first_row * block.row_bytes :]
    target = memory[one.frame_offset + block.frame_offset + one.first_token * block.row_bytes :]
    np.copyto(
        as_strided(target, shape, (block.frame_stride, 1)),
        as_strided(source, shape, (block.snapshot_stride, 1)),
    )


def _scatter(snapshot: Bytes, memory: Bytes, block: RowBlock, ranges: Sequence[RowRange]) -> None:
    row_bytes = block.row_bytes
    rows = [row for one in ranges for row in range(one.first_row, one.first_row + one.token_count)]
    starts = [
        one.frame_offset + block.frame_offset + token * row_bytes
        for one in ranges
        for token in range(one.first_token, one.first_token + one.token_count)
    ]
    layers = np.arange(block.layer_count, dtype=np.int64)[:, np.newaxis] * block.frame_stride
    source = as_strided(
        snapshot[block.snapshot_offset :],
        (block.layer_count, max(rows) + 1, row_bytes),
        (block.snapshot_stride, row_bytes, 1),
    )
    are_neighbours = rows == list(range(rows[0], rows[0] + len(rows)))
    # A slice is a view, a list would make a copy first.
    picked = source[:, rows[0] : rows[0] + len(rows)] if are_neighbours else source[:, rows]
    windows = as_strided(memory, (len(memory) - row_bytes + 1, row_bytes), (1, 1))
    windows[layers + np.array(starts, np.int64)] = picked
