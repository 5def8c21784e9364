"""The open tail of a sequence in memory: rows that are no complete chunk yet."""

from collections.abc import Sequence
from typing import Self

from kvstored_contract.layout import StateKind, StateLayout
from kvstored_contract.snapshot import SnapshotGeometry


class Tail:
    """Tokens of one open chunk. Each layer of KV grows in two halves, keys and values."""

    def __init__(self, layout: StateLayout) -> None:
        self.layout = layout
        self.token_count = 0
        self._halves = [
            [bytearray() for _ in range(halves_of(layer.kind))] for layer in layout.layers
        ]

    @classmethod
    def of_slices(cls, layout: StateLayout, slices: Sequence[bytes], token_count: int) -> Self:
        """The first ``token_count`` tokens of a chunk, which may be a short one."""
        tail = cls(layout)
        tail.token_count = token_count
        for layer, halves in enumerate(tail._halves):
            half_bytes = len(slices[layer]) // len(halves)
            kept = token_count * tail._row_bytes(layer)
            for number, half in enumerate(halves):
                half.extend(slices[layer][number * half_bytes :][:kept])
        return tail

    def add(
        self, snapshot: memoryview, geometry: SnapshotGeometry, *, first_row: int, row_count: int
    ) -> None:
        """Adds rows of a snapshot."""
        for layer, halves in enumerate(self._halves):
            row_bytes = self._row_bytes(layer)
            for number, half in enumerate(halves):
                row = number * geometry.row_count + first_row
                start = geometry.offsets[layer] + row * row_bytes
                half.extend(snapshot[start : start + row_count * row_bytes])
        self.token_count += row_count

    def first(self, token_count: int) -> Self:
        """A tail of its own with the first ``token_count`` tokens."""
        return self.of_slices(self.layout, self.slices(), token_count)

    def slices(self) -> tuple[bytes, ...]:
        """What is stored of these tokens as a chunk."""
        return tuple(b"".join(halves) for halves in self._halves)

    def _row_bytes(self, layer: int) -> int:
        return self.layout.layers[layer].token_bytes // len(self._halves[layer])


def halves_of(kind: StateKind) -> int:
    """Into how many parts a layer's chunk is laid out."""
    return 2 if kind is StateKind.KV else 1
