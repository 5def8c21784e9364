"""The variant that HCache compares with: the engine's thread writes to the device itself.

Each row of hidden states goes to its place in the file of its layer's chunks as soon as
its layer is computed, past the page cache (section 6.3.3, DirectIO).
"""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.benchmark import BenchmarkError
from engine_adapters.runner.model.step import Segment

ROW_BYTES = 4096
"""What a device takes at least, and what a row must have."""


class DirectSink:
    """Writes hidden states with O_DIRECT as they are computed.

    ``chunk_tokens`` places are kept for each of ``batch_size`` sequences and each layer;
    a sequence that is longer begins at the front again. ``write_count`` counts requests.
    """

    def __init__(self, path: Path, *, batch_size: int, layer_count: int, chunk_tokens: int) -> None:
        self._batch_size = batch_size
        self._layer_count = layer_count
        self._chunk_tokens = chunk_tokens
        with path.open("wb") as file:
            # Written and not only reserved: the first write to a reserved block costs more.
            for _ in range(batch_size * layer_count):
                file.write(bytes(chunk_tokens * ROW_BYTES))
            os.fsync(file.fileno())
        self._descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT)
        self._memory = mmap.mmap(-1, batch_size * ROW_BYTES)
        self._rows = torch.frombuffer(self._memory, dtype=torch.float32).view(batch_size, -1)
        self._view = memoryview(self._memory)
        self._places: list[tuple[int, int, int]] = []
        self._slots: dict[int, int] = {}
        self.write_count = 0

    def begin_request(
        self,
        request_id: int,
        token_ids: Sequence[int],  # noqa: ARG002 - places need no keys
        stored_tokens: int,  # noqa: ARG002
    ) -> None:
        """Gives a sequence its place in the file."""
        used = set(self._slots.values())
        self._slots[request_id] = next(slot for slot in range(self._batch_size) if slot not in used)

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Remembers where the rows of the step go."""
        self._places = [
            (
                segment.first_row,
                self._slots[segment.request_id],
                segment.first_position % self._chunk_tokens,
            )
            for segment in segments
        ]

    def take(
        self,
        layer: int,
        hidden: Tensor,
        keys: Tensor,  # noqa: ARG002 - only hidden states are saved
        values: Tensor,  # noqa: ARG002
    ) -> None:
        """Writes the rows of one layer, one request each."""
        if hidden.element_size() * hidden.shape[1] != ROW_BYTES:
            raise BenchmarkError(f"direct writes need rows of {ROW_BYTES} bytes")
        self._rows[: len(hidden)] = hidden
        for row, slot, position in self._places:
            place = (slot * self._layer_count + layer) * self._chunk_tokens + position
            start = row * ROW_BYTES
            os.pwrite(self._descriptor, self._view[start : start + ROW_BYTES], place * ROW_BYTES)
        self.write_count += len(self._places)

    def end_step(self) -> None:
        """Everything is written."""

    def abandon_step(self) -> None:
        """What is written is overwritten."""

    def end_request(self, request_id: int) -> None:
        """Forgets the sequence."""
        del self._slots[request_id]

    def close(self) -> None:
        """Closes the file; the folder's owner removes it."""
        os.close(self._descriptor)
