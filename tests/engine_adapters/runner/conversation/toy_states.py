"""States that tell everything they were computed from: digests in place of a model's numbers."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_client.testing import StoredChunk

WINDOW = 20
SINKS = 1
CHUNK_TOKENS = 4
VOCABULARY = 3
"""So few that histories which have nothing to do with each other have the same tokens."""
HALF_BYTES = 8
HIDDEN_BYTES = 16
LAYOUT = StateLayout(
    model="digests",
    dtype="uint8",
    layers=(LayerState(StateKind.KV, 2 * HALF_BYTES), LayerState(StateKind.HIDDEN, HIDDEN_BYTES)),
    chunk_tokens=CHUNK_TOKENS,
)
FORMAT = StateFormat(
    layout=LAYOUT,
    hidden_size=HIDDEN_BYTES,
    kv_head_count=1,
    head_dim=HALF_BYTES,
    dtype=torch.uint8,
)


class DigestWindow:
    """A state for each position: the digest of all states before it and of its own token.

    So a state that was computed from other tokens, or from tokens at other positions, differs.
    """

    def __init__(self, rows: Sequence[bytes] = ()) -> None:
        self.rows = list(rows)

    def feed(self, token_id: int) -> bytes:
        """Adds a token; its state."""
        self.rows.append(sha256(b"".join([*self.rows, bytes([token_id])])).digest())
        return self.rows[-1]

    def keep(self, kept: Sequence[range]) -> None:
        """Forgets all other positions."""
        self.rows = [self.rows[position] for one in kept for position in one]

    def next_token(self) -> int:
        """What the last state makes of it all."""
        return self.rows[-1][0] % VOCABULARY


def tensors_of(rows: Sequence[bytes]) -> tuple[Tensor, Tensor, Tensor]:
    """What a model shows of each layer for these states: hidden, keys, values."""
    table = torch.from_numpy(np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1).copy())
    keys, values, hidden = table.split([HALF_BYTES, HALF_BYTES, HIDDEN_BYTES], dim=1)
    return hidden, keys[:, None], values[:, None]


def rows_of(chunk: StoredChunk) -> list[bytes]:
    """The states that a stored chunk holds."""
    halves, hidden = chunk.slices
    keys, values = halves[: len(halves) // 2], halves[len(halves) // 2 :]
    return [
        keys[row * HALF_BYTES :][:HALF_BYTES]
        + values[row * HALF_BYTES :][:HALF_BYTES]
        + hidden[row * HIDDEN_BYTES :][:HIDDEN_BYTES]
        for row in range(chunk.token_count)
    ]
