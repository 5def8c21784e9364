"""Chunks that are known by a number, which says what their bytes are."""

import numpy as np

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    PutOutcome,
    StateKind,
    StateLayout,
)

LAYOUT = StateLayout(
    model="numbered", dtype="float32", layers=(LayerState(StateKind.KV, 1024),) * 4
)
CHUNK_BYTES = Placement.contiguous_bytes(LAYOUT, 1)


def key_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


def payload_of(number: int) -> bytes:
    return np.random.default_rng(number).bytes(CHUNK_BYTES)


def is_put(client: Client, number: int) -> bool:
    """Puts a chunk; whether it was acknowledged as durable."""
    region = client.allocate(CHUNK_BYTES)
    if region is None:
        return False
    with region:
        region.view[:] = payload_of(number)
        chunk = NewChunk(key=key_of(number), token_count=64, stripe=number)
        report = client.put(LAYOUT, [chunk], Placement.contiguous(region, LAYOUT), ack=Ack.DURABLE)
    return report.results[0].outcome in {PutOutcome.STORED, PutOutcome.EXISTED}


def is_served(client: Client, number: int) -> bool:
    """Whether a chunk can be read; fails when its bytes are not those that were put."""
    region = client.allocate(CHUNK_BYTES)
    assert region is not None
    with (
        region,
        client.read(LAYOUT, [key_of(number)], Placement.contiguous(region, LAYOUT)) as read,
    ):
        if not read.wait().resident[0]:
            return False
        assert bytes(region.view) == payload_of(number)
        return True
