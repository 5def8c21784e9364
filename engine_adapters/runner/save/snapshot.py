"""The states of one step on their way from the engine into the arena: stage 1."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.landing import Landing, all_of
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Region, SnapshotGeometry, StateKind

_KV_DIMS = 4


class Snapshot:
    """Hidden states, or keys and values, of each layer that is stored.

    The rows of all sequences of the step lie together in ``region``, as
    ``SnapshotGeometry`` says (HCache, section 4.2.2). Each layer is one copy; layers too small to
    be worth one go together with those that follow them.
    """

    def __init__(
        self,
        region: Region,
        state_format: StateFormat,
        row_count: int,
        copies: DeviceCopies,
        *,
        gathered_bytes: int = 0,
    ) -> None:
        """``gathered_bytes`` make a copy of several layers worth it."""
        geometry = SnapshotGeometry(state_format.states, row_count)
        self.region = region
        self.row_count = row_count
        self._format = state_format
        self._copies = copies
        self._gathered_bytes = gathered_bytes
        self._landings: list[Landing] = []
        itemsize = state_format.dtype.itemsize
        self._offsets = [offset // itemsize for offset in geometry.offsets]
        self._memory = region.tensor(state_format.dtype, (geometry.byte_count // itemsize,))
        self._gathered: list[Tensor] = []
        self._gathered_kind = StateKind.NONE
        self._first = self._stop = 0
        """Items of the memory that belong to what is gathered."""

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """As ``take_stored`` of all there is of a layer; shapes as ``StateSink.take``."""
        kind = self._format.states.layers[layer].kind
        self.take_stored(layer, stored_parts(kind, hidden, keys, values))

    def take_stored(self, layer: int, parts: Sequence[Tensor]) -> None:
        """Copies what the layout stores of one layer, or keeps it for a copy with later layers.

        ``parts`` are ``stored_parts``. Rows behind the last one of the snapshot are nobody's.
        """
        if not parts:
            return
        kind = self._format.states.layers[layer].kind
        if kind is not self._gathered_kind or self._offsets[layer] != self._stop:
            self.launch()
            self._gathered_kind = kind
            self._first = self._stop = self._offsets[layer]
        for part in parts:
            self._gathered.append(part[: self.row_count])
            self._stop += self._gathered[-1].numel()
        if (self._stop - self._first) * self._format.dtype.itemsize >= self._gathered_bytes:
            self.launch()

    @torch.inference_mode()
    def launch(self) -> None:
        """Copies what was gathered; after the last layer, by the engine's thread."""
        if self._gathered:
            target = self._memory[self._first : self._stop]
            target = target.view(len(self._gathered), *self._gathered[0].shape)
            sources, self._gathered = self._gathered, []
            if len(sources) == 1:
                target = target[0]
            self._landings.append(self._copies.fetch(sources, target))
        self._first = self._stop

    def rows(self, layer: int) -> Tensor:
        """The states of a stored layer, once settled; aliases the region.

        [rows, hidden_size] of a HIDDEN layer, [2, rows, kv_heads, head_dim] of a KV layer.
        """
        shape = list(self._format.slice_shape(layer))
        shape[token_axis(shape)] = self.row_count
        first = self._offsets[layer]
        return self._memory[first : first + prod(shape)].view(shape)

    def settle(self) -> None:
        """Returns when the region holds all that was launched; on any thread."""
        all_of(self._landings).wait()


def stored_parts(
    kind: StateKind, hidden: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, ...]:
    """What is stored of a layer of that kind, in this order."""
    if kind is StateKind.NONE:
        return ()
    return (hidden,) if kind is StateKind.HIDDEN else (keys, values)


def token_axis(shape: Sequence[int]) -> int:
    """The axis of the tokens in states of this shape: behind the halves of KV, else the first."""
    return 1 if len(shape) == _KV_DIMS else 0
