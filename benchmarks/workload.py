"""What the storage benchmark stores: chunks of one layout with random payload."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvstored_client import LayerState, NewChunk, StateKind, StateLayout

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
CHUNK_TOKENS = 64
_RANDOM_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``chunk_count`` chunks of ``layer_count`` slices of ``slice_bytes`` (multiples of 4 KiB)."""

    chunk_count: int
    slice_bytes: int
    layer_count: int

    @property
    def layout(self) -> StateLayout:
        """A layout with slices of that size."""
        layer = LayerState(StateKind.KV, self.slice_bytes // CHUNK_TOKENS)
        return StateLayout(
            model="benchmark",
            dtype="float16",
            layers=(layer,) * self.layer_count,
            chunk_tokens=CHUNK_TOKENS,
        )

    @property
    def chunk_bytes(self) -> int:
        """Payload of one chunk."""
        return self.slice_bytes * self.layer_count

    @property
    def payload_bytes(self) -> int:
        """Payload of all chunks."""
        return self.chunk_bytes * self.chunk_count

    def payload(self, seed: int) -> NDArray[np.uint8]:
        """Populated array of shape [payload_bytes]; no two chunks are alike."""
        block = np.frombuffer(np.random.default_rng(seed).bytes(_RANDOM_BYTES), np.uint8)
        payload = np.resize(block, self.payload_bytes)
        numbers = payload.reshape(self.chunk_count, self.chunk_bytes)[:, :8]
        numbers[:] = np.arange(self.chunk_count, dtype="<u8").view(np.uint8).reshape(-1, 8)
        return payload

    def new_chunks(self, name: str) -> list[NewChunk]:
        """One sequence of chunks; another ``name`` gives other keys."""
        chunks: list[NewChunk] = []
        parent = b""
        for index in range(self.chunk_count):
            key = hashlib.sha256(f"{name}/{index}".encode()).digest()
            chunks.append(NewChunk(key=key, parent_key=parent, token_count=CHUNK_TOKENS))
            parent = key
        return chunks
