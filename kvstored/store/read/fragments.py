"""Copies between contiguous slices and the fragments that a placement makes of them.

Copies go through numpy, which releases the interpreter lock.
"""

from collections.abc import Iterable

import numpy as np
import xxhash

from kvstored.format.checksum import checksum
from kvstored_contract.limits import ALIGNMENT_BYTES

Fragments = tuple[tuple[int, int], ...]
"""(arena offset, bytes) of each fragment of one slice, in order."""


def copy(destination: memoryview, source: memoryview) -> None:
    """Copies equally long buffers."""
    np.copyto(np.frombuffer(destination, np.uint8), np.frombuffer(source, np.uint8))


def scatter(source: memoryview, arena: memoryview, slices: Iterable[tuple[int, Fragments]]) -> None:
    """Copies slices, each given by where it starts in ``source``, to their fragments.

    Slices that follow each other on both sides become one copy, because the longer a
    copy is, the less it costs.
    """
    for start, offset, byte_count in moves(slices):
        copy(arena[offset : offset + byte_count], source[start : start + byte_count])


def moves(slices: Iterable[tuple[int, Fragments]]) -> list[tuple[int, int, int]]:
    """The fewest copies that scatter slices: (start in the source, arena offset, bytes)."""
    joined: list[tuple[int, int, int]] = []
    for slice_start, fragments in slices:
        start = slice_start
        for offset, byte_count in fragments:
            last = joined[-1] if joined else (0, 0, 0)
            if last[2] and last[0] + last[2] == start and last[1] + last[2] == offset:
                joined[-1] = (last[0], last[1], last[2] + byte_count)
            else:
                joined.append((start, offset, byte_count))
            start += byte_count
    return joined


def gather(arena: memoryview, fragments: Fragments, destination: memoryview) -> None:
    """Copies the fragments of a slice to one contiguous place."""
    start = 0
    for offset, byte_count in fragments:
        copy(destination[start : start + byte_count], arena[offset : offset + byte_count])
        start += byte_count


def fragments_checksum(arena: memoryview, fragments: Fragments) -> int:
    """xxh3-64 over the fragments as if they were contiguous."""
    if len(fragments) == 1:
        offset, byte_count = fragments[0]
        return checksum(arena[offset : offset + byte_count])
    digest = xxhash.xxh3_64()
    for offset, byte_count in fragments:
        digest.update(arena[offset : offset + byte_count])
    return int(digest.intdigest())


def coalesce(fragments: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins fragments that follow each other in the arena."""
    joined: list[tuple[int, int]] = []
    for offset, byte_count in fragments:
        if joined and sum(joined[-1]) == offset:
            joined[-1] = (joined[-1][0], joined[-1][1] + byte_count)
        else:
            joined.append((offset, byte_count))
    return joined


def is_aligned(fragments: Iterable[tuple[int, int]]) -> bool:
    """Whether a device can transfer every fragment without a bounce buffer."""
    return not any(
        offset % ALIGNMENT_BYTES or byte_count % ALIGNMENT_BYTES for offset, byte_count in fragments
    )
