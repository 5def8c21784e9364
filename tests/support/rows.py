"""Rows whose bytes follow from their tokens, and where they lie in snapshots and chunks."""

from collections.abc import Sequence

import numpy as np

from kvstored_contract.keys import chunk_key, prefix_keys
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.snapshot import SnapshotGeometry

TOKEN_IDS = 512

MIXED = StateLayout(
    model="rows",
    dtype="float32",
    layers=(
        LayerState(StateKind.KV, 1024),
        LayerState(StateKind.HIDDEN, 512),
        LayerState(StateKind.NONE, 0),
        LayerState(StateKind.KV, 1024),
        LayerState(StateKind.KV, 1000),
        LayerState(StateKind.HIDDEN, 512),
    ),
    chunk_tokens=16,
)
"""Layers of every kind; slices of up to 16 KiB, chunks of 76 KiB and a header."""


class Rows:
    """States of TOKEN_IDS different tokens of a layout."""

    def __init__(self, layout: StateLayout = MIXED, *, namespace: str = "default") -> None:
        self.layout = layout
        self.namespace = namespace
        random = np.random.default_rng(7)
        self._states = [
            random.integers(0, 256, (TOKEN_IDS, layer.token_bytes), np.uint8)
            for layer in layout.layers
        ]

    def snapshot(self, tokens: Sequence[int]) -> bytes:
        """The snapshot of a step with one row for each token."""
        geometry = SnapshotGeometry(self.layout, len(tokens))
        memory = np.zeros(geometry.byte_count, np.uint8)
        for layer, offset in enumerate(geometry.offsets):
            part = self._block(layer, tokens)
            memory[offset : offset + len(part)] = np.frombuffer(part, np.uint8)
        return memory.tobytes()

    def slices(self, tokens: Sequence[int]) -> list[bytes]:
        """The slices of a chunk of these tokens."""
        return [self._block(layer, tokens) for layer in range(self.layout.layer_count)]

    def keys(self, tokens: Sequence[int]) -> list[bytes]:
        """Keys of the complete chunks of a sequence."""
        return prefix_keys(namespace=self.namespace, layout=self.layout, token_ids=tokens)

    def tail_key(self, tokens: Sequence[int]) -> bytes:
        """Key of the tokens behind the last complete chunk; empty when there are none."""
        rest = len(tokens) % self.layout.chunk_tokens
        return (
            chunk_key(
                namespace=self.namespace,
                layout_id=self.layout.layout_id,
                parent=(self.keys(tokens) or [b""])[-1],
                token_ids=tokens[len(tokens) - rest :],
            )
            if rest
            else b""
        )

    def _block(self, layer: int, tokens: Sequence[int]) -> bytes:
        states = self._states[layer][list(tokens)]
        if self.layout.layers[layer].kind is StateKind.KV:
            half = states.shape[1] // 2
            return states[:, :half].tobytes() + states[:, half:].tobytes()
        return states.tobytes()
