"""Copies between contiguous slices and the fragments that a placement makes of them.

A copy of more than some hundred bytes through numpy releases the interpreter lock. A slice of many
small fragments is copied by few calls for all of them: a loop over them would keep the interpreter
from others.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt
import xxhash

from kvstored.format.checksum import checksum
from kvstored.store.read.placement import Fragments

FRAGMENTS_AT_ONCE = 512
COPIED_AT_ONCE_BYTES = 256 * 1024
"""Numpy keeps the interpreter while it copies fewer rows than that: some ten microseconds."""
WIDE_BYTES = 16 * 1024
"""Fragments of so many bytes are worth a call for each."""

Rows = npt.NDArray[np.void]


def copy(destination: memoryview, source: memoryview) -> None:
    """Copies equally long buffers."""
    np.copyto(np.frombuffer(destination, np.uint8), np.frombuffer(source, np.uint8))


def scatter(
    source: memoryview,
    arena: memoryview,
    slices: Iterable[tuple[int, Fragments]],
    *,
    pause: Callable[[], None] | None = None,
) -> None:
    """Copies slices, each given by where it starts in ``source``, to their fragments.

    Whole slices that follow each other on both sides become one copy, because the longer a
    copy is, the less it costs. ``pause`` is called after each part of many small fragments.
    """
    whole: list[tuple[int, Fragments]] = []
    for start, fragments in slices:
        if fragments.blocks is None or fragments.width_bytes >= WIDE_BYTES:
            whole += _wholes(start, fragments)
            continue
        cut = source[start : start + fragments.byte_count]
        for part, rows, places in _parts(arena, fragments):
            rows[places] = np.frombuffer(cut[part], rows.dtype)
            if pause is not None:
                pause()
    for start, offset, byte_count in moves(whole):
        copy(arena[offset : offset + byte_count], source[start : start + byte_count])


def gather(arena: memoryview, fragments: Fragments, destination: memoryview) -> None:
    """Copies the fragments of a slice to one contiguous place."""
    if fragments.blocks is None or fragments.width_bytes >= WIDE_BYTES:
        for start, offset, byte_count in moves(_wholes(0, fragments)):
            copy(destination[start : start + byte_count], arena[offset : offset + byte_count])
        return
    for part, rows, places in _parts(arena, fragments):
        copy(destination[part], rows[places].view(np.uint8).data)


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
    pieces = coalesce([fragments])
    if len(pieces) == 1:
        offset, byte_count = pieces[0]
        return checksum(arena[offset : offset + byte_count])
    digest = xxhash.xxh3_64()
    for offset, byte_count in pieces:
        digest.update(arena[offset : offset + byte_count])
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


def _wholes(start: int, fragments: Fragments) -> list[tuple[int, Fragments]]:
    """Each fragment of a slice as a slice of its own, and where it starts in the source."""
    width_bytes = fragments.width_bytes
    return [
        (start + number * width_bytes, Fragments(*pair))
        for number, pair in enumerate(fragments.pairs())
    ]


def _parts(
    arena: memoryview, fragments: Fragments
) -> Iterator[tuple[slice, Rows, npt.NDArray[np.int64]]]:
    """Stretches of fragments for one call each: where they lie in the slice, and in the arena.

    The second is one row of a fragment's bytes at every byte of the arena that has room for it:
    rows overlap. The third has the numbers of their rows.
    """
    width_bytes, starts = fragments.width_bytes, fragments.starts
    shape = (arena.nbytes - width_bytes + 1,)
    rows: Rows = np.ndarray(shape, f"V{width_bytes}", buffer=arena, strides=(1,))
    at_once = max(1, min(FRAGMENTS_AT_ONCE, COPIED_AT_ONCE_BYTES // width_bytes))
    for first in range(0, len(starts), at_once):
        places = starts[first : first + at_once]
        yield slice(first * width_bytes, (first + len(places)) * width_bytes), rows, places
