"""Chunks of a test's own, put and read through a client."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvstored_client import (
    Client,
    NewChunk,
    Placement,
    Region,
    StateLayout,
)
from tests.support.rows import MIXED

ARENA_BYTES = 16 << 20
CHUNKS = 5
ENCODED = StateLayout(model="coded", dtype="f", layers=MIXED.layers[:3], chunk_tokens=16, codec="c")
TOKENS = [number * 37 % 512 for number in range(CHUNKS * MIXED.chunk_tokens + 5)]
Connect = Callable[..., Client]


def region_of(client: Client, layout: StateLayout = MIXED, chunk_count: int = CHUNKS) -> Region:
    region = client.allocate(Placement.contiguous_bytes(layout, chunk_count))
    assert region is not None
    return region


def filled(client: Client, seed: int, layout: StateLayout = MIXED) -> Region:
    region = region_of(client, layout)
    region.view[:] = np.random.default_rng(seed).bytes(region.byte_count)
    return region


def slice_at(
    region: Region,
    chunk: int,
    layer: int,
    *,
    layout: StateLayout = MIXED,
    layer_count: int | None = None,
    byte_count: int | None = None,
) -> bytes:
    """A slice of a region that is placed as ``Placement.contiguous`` says."""
    place = chunk * (layer_count or layout.layer_count) + layer
    start = place * layout.layer_stride
    size = layout.slice_bytes(layer) if byte_count is None else byte_count
    return bytes(region.view[start : start + size])


def chunks_of(keys: Sequence[bytes], token_count: int = MIXED.chunk_tokens) -> list[NewChunk]:
    return [
        NewChunk(key=key, parent_key=parent, token_count=token_count)
        for key, parent in zip(keys, [b"", *keys], strict=False)
    ]


def store(client: Client, seed: int = 0, **options: Any) -> tuple[list[bytes], Region]:
    """Five chunks of the test's own, and the region that they were put from."""
    keys = client.prefix_keys(MIXED, TOKENS)
    source = filled(client, seed)
    report = client.put(MIXED, chunks_of(keys), Placement.contiguous(source, MIXED), **options)
    assert report.stored_count == CHUNKS
    return keys, source
