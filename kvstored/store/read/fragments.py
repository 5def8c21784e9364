"""Copies between contiguous slices and the fragments that a placement makes of them.

Copies go through numpy, which releases the interpreter lock. A slice of many small fragments is
copied by few calls for all of them: one call for each would keep the interpreter from others.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt
import xxhash

from kvstored.format.checksum import checksum
from kvstored.store.read.placement import Fragments
from kvstored.turnstile import TURNSTILE

FRAGMENTS_AT_ONCE = 512
COPIED_AT_ONCE_BYTES = 256 * 1024
"""What one call copies takes some ten microseconds."""

Rows = npt.NDArray[np.void]


def copy(destination: memoryview, source: memoryview) -> None:
    """Copies equally long buffers."""
    np.copyto(np.frombuffer(destination, np.uint8), np.frombuffer(source, np.uint8))


def scatter(source: memoryview, arena: memoryview, slices: Iterable[tuple[int, Fragments]]) -> None:
    """Copies slices, each given by where it starts in ``source``, to their fragments.

    Whole slices that follow each other on both sides become one copy, because the longer a
    copy is, the less it costs.
    """
    whole: list[tuple[int, Fragments]] = []
    for start, fragments in slices:
        if fragments.blocks is None:
            whole.append((start, fragments))
            continue
        rows = _rows(arena, fragments.width_bytes)
        cut = np.frombuffer(source[start : start + fragments.byte_count], rows.dtype)
        for part in _parts(fragments):
            rows[fragments.starts[part]] = cut[part]
    for start, offset, byte_count in moves(whole):
        copy(arena[offset : offset + byte_count], source[start : start + byte_count])


def gather(arena: memoryview, fragments: Fragments, destination: memoryview) -> None:
    """Copies the fragments of a slice to one contiguous place."""
    if fragments.blocks is None:
        copy(destination, arena[fragments.start : fragments.start + fragments.byte_count])
        return
    rows = _rows(arena, fragments.width_bytes)
    joined = np.frombuffer(destination, rows.dtype)
    for part in _parts(fragments):
        joined[part] = rows[fragments.starts[part]]


def moves(slices: Iterable[tuple[int, Fragments]]) -> list[tuple[int, int, int]]:
    """The fewest copies that scatter whole slices: (start in the source, arena offset, bytes)."""
    joined: list[tuple[int, int, int]] = []
    for start, (offset, byte_count, _) in slices:
        last = joined[-1] if joined else (0, 0, 0)
        if last[2] and last[0] + last[2] == start and last[1] + last[2] == offset:
            joined[-1] = (last[0], last[1], last[2] + byte_count)
        elif byte_count:
            joined.append((start, offset, byte_count))
    return joined


def fragments_checksum(arena: memoryview, fragments: Fragments) -> int:
    """xxh3-64 over the fragments as if they were contiguous."""
    if fragments.blocks is None:
        return checksum(arena[fragments.start : fragments.start + fragments.byte_count])
    rows = _rows(arena, fragments.width_bytes)
    digest = xxhash.xxh3_64()
    for part in _parts(fragments):
        digest.update(rows[fragments.starts[part]].view(np.uint8).data)
    return int(digest.intdigest())


def coalesce(slices: Iterable[Fragments]) -> list[tuple[int, int]]:
    """(arena offset, bytes) of each transfer into slices: neighbours in the arena are one."""
    joined: list[tuple[int, int]] = []
    for offset, byte_count in chain.from_iterable(map(Fragments.pairs, slices)):
        if joined and sum(joined[-1]) == offset:
            joined[-1] = (joined[-1][0], joined[-1][1] + byte_count)
        else:
            joined.append((offset, byte_count))
    return joined


def _rows(arena: memoryview, width_bytes: int) -> Rows:
    """One row of so many bytes at every byte of the arena that has room for it: they overlap."""
    shape = (arena.nbytes - width_bytes + 1,)
    return np.ndarray(shape, f"V{width_bytes}", buffer=arena, strides=(1,))


def _parts(fragments: Fragments) -> Iterator[slice]:
    """Stretches of fragments for one call each; others have their turn between them."""
    at_once = max(1, min(FRAGMENTS_AT_ONCE, COPIED_AT_ONCE_BYTES // fragments.width_bytes))
    for part in TURNSTILE.parts(range(fragments.fragment_count), at_once):
        yield slice(part[0], part[-1] + 1)
