"""Copies between contiguous slices and the pieces that a placement makes of them.

Copies go through numpy, which releases the interpreter lock.
"""

from collections.abc import Iterable

import numpy as np
import xxhash

from kvstored.format.checksum import checksum
from kvstored_contract.limits import ALIGNMENT_BYTES

Pieces = tuple[tuple[int, int], ...]
"""(arena offset, bytes) of each piece of one slice, in order."""


def copy(destination: memoryview, source: memoryview) -> None:
    """Copies equally long buffers."""
    np.copyto(np.frombuffer(destination, np.uint8), np.frombuffer(source, np.uint8))


def scatter(source: memoryview, arena: memoryview, slices: Iterable[tuple[int, Pieces]]) -> None:
    """Copies slices, each given by where it starts in ``source``, to their pieces.

    Slices that follow each other on both sides become one copy, because the longer a
    copy is, the less it costs.
    """
    for start, offset, byte_count in moves(slices):
        copy(arena[offset : offset + byte_count], source[start : start + byte_count])


def moves(slices: Iterable[tuple[int, Pieces]]) -> list[tuple[int, int, int]]:
    """The fewest copies that scatter slices: (start in the source, arena offset, bytes)."""
    joined: list[tuple[int, int, int]] = []
    for slice_start, pieces in slices:
        start = slice_start
        for offset, byte_count in pieces:
            last = joined[-1] if joined else (0, 0, 0)
            if last[2] and last[0] + last[2] == start and last[1] + last[2] == offset:
                joined[-1] = (last[0], last[1], last[2] + byte_count)
            else:
                joined.append((start, offset, byte_count))
            start += byte_count
    return joined


def gather(arena: memoryview, pieces: Pieces, destination: memoryview) -> None:
    """Copies the pieces of a slice to one contiguous place."""
    start = 0
    for offset, byte_count in pieces:
        copy(destination[start : start + byte_count], arena[offset : offset + byte_count])
        start += byte_count


def pieces_checksum(arena: memoryview, pieces: Pieces) -> int:
    """xxh3-64 over the pieces as if they were contiguous."""
    if len(pieces) == 1:
        offset, byte_count = pieces[0]
        return checksum(arena[offset : offset + byte_count])
    digest = xxhash.xxh3_64()
    for offset, byte_count in pieces:
        digest.update(arena[offset : offset + byte_count])
    return int(digest.intdigest())


def coalesce(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins pieces that follow each other in the arena."""
    joined: list[tuple[int, int]] = []
    for offset, byte_count in pieces:
        if joined and sum(joined[-1]) == offset:
            joined[-1] = (joined[-1][0], joined[-1][1] + byte_count)
        else:
            joined.append((offset, byte_count))
    return joined


def is_aligned(pieces: Iterable[tuple[int, int]]) -> bool:
    """Whether a device can transfer every piece without a bounce buffer."""
    return not any(
        offset % ALIGNMENT_BYTES or byte_count % ALIGNMENT_BYTES for offset, byte_count in pieces
    )
