"""The states of one step on their way from the engine into the arena: stage 1."""

from collections.abc import Sequence
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Region, SnapshotGeometry, StateKind

_KV_DIMS = 4


class Copier(Protocol):
    """Copies tensors of the engine into the arena. One thread only, but for ``settle``."""

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Begins to copy; ``source`` may be freed then, but not overwritten before ``settle``."""

    def end(self) -> None:
        """No more copies will be begun."""

    def settle(self) -> None:
        """Returns when every target holds its bytes; on any thread, after ``end``."""


class HostCopier:
    """From a CPU: a copy is over when it returns."""

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copies."""
        target.copy_(source)

    def end(self) -> None:
        """Nothing is pending."""

    def settle(self) -> None:
        """Nothing is pending."""


class CudaCopier:
    """From a GPU: on a stream of its own, through pinned memory.

    The engine's stream never waits. The copy stream waits for what the engine's has
    launched so far, and the allocator keeps the source until the copy is over.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here
        self._pending: list[tuple[Tensor, Tensor]] = []

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Launches the copy into pinned memory."""
        pinned = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(source.device))
        with torch.cuda.stream(self._stream):
            pinned.copy_(source, non_blocking=True)
        source.record_stream(self._stream)
        self._pending.append((pinned, target))

    def end(self) -> None:
        """Marks the end of the copies on their stream."""
        self._copied.record(self._stream)

    def settle(self) -> None:
        """Waits for the stream, then copies into the arena."""
        self._copied.synchronize()
        for pinned, target in self._pending:
            target.copy_(pinned)
        self._pending.clear()


class Snapshot:
    """One copy for each hidden state of a layer, two (keys, values) for each KV layer.

    The rows of all sequences of the step lie together in ``region``, as
    ``SnapshotGeometry`` says (HCache, section 4.2.2).
    """

    def __init__(
        self, region: Region, state_format: StateFormat, row_count: int, copier: Copier
    ) -> None:
        geometry = SnapshotGeometry(state_format.states, row_count)
        self.region = region
        self.row_count = row_count
        self._format = state_format
        self._copier = copier
        itemsize = state_format.dtype.itemsize
        self._offsets = [offset // itemsize for offset in geometry.offsets]
        self._memory = region.tensor(state_format.dtype, (geometry.byte_count // itemsize,))

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Begins to copy what the layout stores of one layer; shapes as ``StateSink.take``.

        Rows behind the last one of the snapshot are nobody's.
        """
        hidden, keys, values = (part[: self.row_count] for part in (hidden, keys, values))
        match self._format.states.layers[layer].kind:
            case StateKind.HIDDEN:
                self._copy(hidden, self._offsets[layer])
            case StateKind.KV:
                self._copy(keys, self._offsets[layer])
                self._copy(values, self._offsets[layer] + values.numel())
            case StateKind.NONE:
                pass

    def rows(self, layer: int) -> Tensor:
        """The states of a stored layer, once settled; aliases the region.

        [rows, hidden_size] of a HIDDEN layer, [2, rows, kv_heads, head_dim] of a KV layer.
        """
        shape = list(self._format.slice_shape(layer))
        shape[token_axis(shape)] = self.row_count
        first = self._offsets[layer]
        return self._memory[first : first + prod(shape)].view(shape)

    def end(self) -> None:
        """Every layer was taken."""
        self._copier.end()

    def settle(self) -> None:
        """Returns when the region holds the whole snapshot; on any thread."""
        self._copier.settle()

    def _copy(self, source: Tensor, first: int) -> None:
        self._copier.copy(source, self._memory[first : first + source.numel()].view(source.shape))


def token_axis(shape: Sequence[int]) -> int:
    """The axis of the tokens in states of this shape: behind the halves of KV, else the first."""
    return 1 if len(shape) == _KV_DIMS else 0


def copier_for(device: torch.device, stream: torch.cuda.Stream | None) -> Copier:
    """The copier of one step; on CUDA ``stream`` is the one for copies."""
    if device.type == "cuda":
        assert stream is not None
        return CudaCopier(stream)
    return HostCopier()
