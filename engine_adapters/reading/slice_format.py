"""What reading has to know of the states that it brings."""

from typing import Protocol

import torch

from engine_adapters.chunk_codec import ChunkCodec
from kvstored_client import StateLayout


class SliceFormat(Protocol):
    """The layout that the store knows, and the shapes of its slices. Immutable."""

    @property
    def layout(self) -> StateLayout:
        """What is stored: with a codec, the codec's layout."""

    @property
    def dtype(self) -> torch.dtype:
        """That of the states."""

    @property
    def codec(self) -> ChunkCodec | None:
        """What decodes the slices; None where the store holds the states themselves."""

    def slice_shape(self, layer: int, token_count: int | None = None) -> tuple[int, ...]:
        """Shape of one slice of a stored layer, decoded.

        Of ``token_count`` tokens (default: a complete chunk).
        """

    def held_bytes(self, chunk_count: int) -> int:
        """What reading ``chunk_count`` chunks holds: of the arena, or decoded if that is more."""
