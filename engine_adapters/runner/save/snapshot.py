"""The states of one step on their way from the engine into the arena: stage 1."""

from collections.abc import Sequence
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Region, SnapshotGeometry, StateKind

_KV_DIMS = 4


class Copier(Protocol):
    """Copies tensors of the engine into the arena. One thread only, but for ``settle``."""

    def copy(self, sources: Sequence[Tensor], target: Tensor) -> None:
        """Begins one copy of one tensor, or of several of one shape, stacked.

        ``sources`` may be freed then, but not overwritten before ``settle``.
        """

    def end(self) -> None:
        """No more copies will be begun."""

    def settle(self) -> None:
        """Returns when every target holds its bytes; on any thread, after ``end``."""


class HostCopier:
    """From a CPU: a copy is over when it returns."""

    def copy(self, sources: Sequence[Tensor], target: Tensor) -> None:
        """Copies."""
        if len(sources) == 1:
            target.copy_(sources[0])
        else:
            torch.stack(tuple(sources), out=target)

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

    def copy(self, sources: Sequence[Tensor], target: Tensor) -> None:
        """Launches the copy into pinned memory; what has to be stacked is, on the GPU."""
        pinned = torch.empty(target.shape, dtype=target.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(sources[0].device))
        with torch.cuda.stream(self._stream):
            stacked = sources[0] if len(sources) == 1 else torch.stack(tuple(sources))
            pinned.copy_(stacked, non_blocking=True)
        for source in sources:
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
    """One copy for each layer that is stored: its hidden states, or keys and values together.

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
                self._copier.copy((hidden,), self.rows(layer))
            case StateKind.KV:
                self._copier.copy((keys, values), self.rows(layer))
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


def token_axis(shape: Sequence[int]) -> int:
    """The axis of the tokens in states of this shape: behind the halves of KV, else the first."""
    return 1 if len(shape) == _KV_DIMS else 0


def copier_for(device: torch.device, stream: torch.cuda.Stream | None) -> Copier:
    """The copier of one step; on CUDA ``stream`` is the one for copies."""
    if device.type == "cuda":
        assert stream is not None
        return CudaCopier(stream)
    return HostCopier()
