"""What the storage benchmark stores: chunks of one layout with random payload."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kvstored_client import LayerState, NewChunk, StateKind, StateLayout

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
GB = 1e9
CHUNK_TOKENS = 64
_RANDOM_BYTES = 16 * MIB
_NUMBERED_BYTES = 16 * KIB
"""The smallest slice: each begins with a number of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``chunk_count`` chunks of ``layer_count`` slices of ``slice_bytes`` (multiples of 4 KiB)."""

    chunk_count: int
    slice_bytes: int
    layer_count: int

    @classmethod
    def of_payload(cls, payload_bytes: int, *, slice_bytes: int, layer_count: int) -> Self:
        """As many chunks as have ``payload_bytes``, a multiple of a chunk."""
        chunk_count, rest = divmod(payload_bytes, slice_bytes * layer_count)
        assert chunk_count > 0 == rest, (payload_bytes, slice_bytes, layer_count)
        return cls(chunk_count=chunk_count, slice_bytes=slice_bytes, layer_count=layer_count)

    @property
    def layout(self) -> StateLayout:
        """A layout with slices of that size; always the same object."""
        return _layout(self.slice_bytes, self.layer_count)

    @property
    def chunk_bytes(self) -> int:
        """Payload of one chunk."""
        return self.slice_bytes * self.layer_count

    @property
    def payload_bytes(self) -> int:
        """Payload of all chunks."""
        return self.chunk_bytes * self.chunk_count

    def new_chunks(self, name: str) -> list[NewChunk]:
        """One sequence of chunks; another ``name`` or layout gives other keys."""
        chunks: list[NewChunk] = []
        parent = b""
        for index in range(self.chunk_count):
            identity = f"{name}/{self.slice_bytes}/{self.layer_count}/{index}"
            key = hashlib.sha256(identity.encode()).digest()
            chunks.append(NewChunk(key=key, parent_key=parent, token_count=CHUNK_TOKENS))
            parent = key
        return chunks


@lru_cache
def _layout(slice_bytes: int, layer_count: int) -> StateLayout:
    layer = LayerState(StateKind.KV, slice_bytes // CHUNK_TOKENS)
    return StateLayout(
        model="benchmark",
        dtype="float16",
        layers=(layer,) * layer_count,
        chunk_tokens=CHUNK_TOKENS,
    )


def numbered_payload(byte_count: int, seed: int) -> NDArray[np.uint8]:
    """Populated array of shape [byte_count], a multiple of 16 KiB; no two slices are alike."""
    block = np.frombuffer(np.random.default_rng(seed).bytes(_RANDOM_BYTES), np.uint8)
    payload = np.resize(block, byte_count)
    heads = payload.reshape(-1, _NUMBERED_BYTES)[:, :8]
    heads[:] = np.arange(len(heads), dtype="<u8").view(np.uint8).reshape(-1, 8)
    return payload


def size_label(byte_count: int) -> str:
    """A size as part of a key: 262144 is ``256kib``, 8388608 is ``8mib``."""
    if byte_count % MIB:
        return f"{byte_count // KIB}kib"
    return f"{byte_count // MIB}mib"
