"""Copies of rows from a snapshot into frames, in as few calls as the rows allow. Pure.

A step of a batch has a thousand small rows (sequences times layers), which cost more to
name one by one in Python than to copy. All layers of all short runs therefore go in one
scatter for each ``RowBlock`` (HCache, section 4.2.2: one copy for each batch). The
copies release the interpreter lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from kvstored.store.write.append_rows import RowBlock

LONG_RUN_TOKENS = 8
"""From so many tokens on a run is copied by a call of its own."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RowRun:
    """Consecutive rows that go to consecutive tokens of one frame.

    ``frame_offset`` is where the frame begins in the memory of all frames.
    """

    frame_offset: int
    first_token: int
    first_row: int
    token_count: int


def copy_rows(
    *, snapshot: Bytes, memory: Bytes, blocks: Sequence[RowBlock], runs: Sequence[RowRun]
) -> None:
    """Copies every run of every block.

    ``snapshot`` (uint8, contiguous) begins with the snapshot's first byte, ``memory`` (uint8,
    contiguous) is that of all frames. The caller has checked that the blocks lie in
    ``snapshot`` and the frames in ``memory``: strides bypass numpy's own checks.
    """
    short = [run for run in runs if run.token_count < LONG_RUN_TOKENS]
    for block in blocks:
        for run in runs:
            if run.token_count >= LONG_RUN_TOKENS:
                _copy_run(snapshot, memory, block, run)
        if short:
            _scatter(snapshot, memory, block, short)


def _copy_run(snapshot: Bytes, memory: Bytes, block: RowBlock, run: RowRun) -> None:
    shape = (block.layer_count, run.token_count * block.row_bytes)
    source = snapshot[block.snapshot_offset + run.first_row * block.row_bytes :]
    target = memory[run.frame_offset + block.frame_offset + run.first_token * block.row_bytes :]
    np.copyto(
        as_strided(target, shape, (block.frame_stride, 1)),
        as_strided(source, shape, (block.snapshot_stride, 1)),
    )


def _scatter(snapshot: Bytes, memory: Bytes, block: RowBlock, runs: Sequence[RowRun]) -> None:
    row_bytes = block.row_bytes
    rows = [row for run in runs for row in range(run.first_row, run.first_row + run.token_count)]
    starts = [
        run.frame_offset + block.frame_offset + token * row_bytes
        for run in runs
        for token in range(run.first_token, run.first_token + run.token_count)
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
