"""Chunks for the kill tests: a number gives the key and the layout, a generation the bytes."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from kvstored_client import Client, LayerState, NewChunk, Placement, StateKind, StateLayout

KIB = 1024
MIB = 1024 * KIB

SMALL = StateLayout(model="kill-small", dtype="float32", layers=(LayerState(StateKind.KV, 64),) * 4)
"""Extents of 20 KiB."""
LARGE = StateLayout(
    model="kill-large", dtype="float32", layers=(LayerState(StateKind.KV, 16 * KIB),) * 3
)
"""Extents of 3 MiB and a page: more than one request of a device."""
LARGE_EVERY = 1000
"""Numbers that are a multiple of this have the large layout."""

_STEP = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def layout_of(number: int) -> StateLayout:
    """The layout of a chunk."""
    return SMALL if number % LARGE_EVERY else LARGE


def chunk_bytes(number: int) -> int:
    """Bytes of a chunk's slices together."""
    return Placement.contiguous_bytes(layout_of(number), 1)


def key_of(number: int) -> bytes:
    """The key of a chunk; neighbours do not lie together in the index."""
    return (number * _STEP & _MASK).to_bytes(8, "big") + number.to_bytes(24, "big")


def payload_of(number: int, generation: int) -> bytes:
    """Bytes of which every eight tell chunk, generation and place."""
    words = np.arange(chunk_bytes(number) // 8, dtype=np.uint64)
    words *= np.uint64(_STEP)
    words += np.uint64((number * 1_000_003 + generation) * _STEP & _MASK)
    return words.tobytes()


def new_chunk(number: int) -> NewChunk:
    """A chunk as a put names it."""
    return NewChunk(key=key_of(number), token_count=64, stripe=number)


def fetch(client: Client, numbers: Iterable[int]) -> dict[int, bytes | None]:
    """The bytes of each chunk, None where it is not resident; in the order of the numbers."""
    found: dict[int, bytes | None] = {}
    for layout, batch in groupby(numbers, layout_of):
        members = list(batch)
        contents = fetch_keys(client, layout, [key_of(number) for number in members])
        found.update(zip(members, contents, strict=True))
    return found


READ_BYTES = 3 * MIB
ARENA_BYTES = 8 * MIB
"""Enough for one batch of a read or of a put, and its board."""


def fetch_keys(client: Client, layout: StateLayout, keys: Sequence[bytes]) -> list[bytes | None]:
    """The bytes of each chunk of a layout, None where it is not resident or the arena is full."""
    found: list[bytes | None] = []
    one_bytes = Placement.contiguous_bytes(layout, 1)
    most = max(READ_BYTES // one_bytes, 1)
    for start in range(0, len(keys), most):
        found += _fetch(client, layout, keys[start : start + most])
    return found


def _fetch(client: Client, layout: StateLayout, keys: Sequence[bytes]) -> list[bytes | None]:
    one_bytes = Placement.contiguous_bytes(layout, 1)
    region = client.allocate(one_bytes * len(keys))
    if region is None:
        return [None] * len(keys)
    with region:
        with client.read(layout, keys, Placement.contiguous(region, layout)) as read:
            resident = read.wait().resident
        return [
            bytes(region.view[index * one_bytes : (index + 1) * one_bytes])
            if resident[index]
            else None
            for index in range(len(keys))
        ]
