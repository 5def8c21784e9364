"""Stores and fetches with the SDK and nothing else; runs in an environment that has only that.

Its argument is the daemon's socket. It prints what it may not have imported, and what it fetched.
"""

import sys

import numpy as np

from kvstored_client import Ack, Client, LayerState, NewChunk, Placement, StateKind, StateLayout

UNWANTED = ("torch", "pydantic", "lmdb", "aiohttp", "rich")
BYTES = 2 * 64 * 256
"""Of a chunk: two layers of 64 tokens of 256 bytes."""

layout = StateLayout(
    model="model@1",
    dtype="float32",
    layers=(LayerState(StateKind.KV, token_bytes=256),) * 2,
)

with Client(sys.argv[1], strict=True) as client:
    (key,) = client.prefix_keys(layout, list(range(64)))
    states = np.random.default_rng(1).integers(0, 256, BYTES, np.uint8)
    source, target = client.allocate(BYTES), client.allocate(BYTES)
    assert source is not None
    assert target is not None
    source.numpy(np.uint8, (BYTES,))[:] = states
    chunk = NewChunk(key=key, parent_key=b"", token_count=64)
    client.put(layout, [chunk], Placement.contiguous(source, layout), ack=Ack.DURABLE)
    with client.read(layout, [key], Placement.contiguous(target, layout)) as read:
        read.wait()
    is_equal = np.array_equal(target.numpy(np.uint8, (BYTES,)), states)

unwanted = [name for name in UNWANTED if name in sys.modules]
sys.stdout.write(f"imported in vain: {unwanted}, equal: {is_equal}\n")
