"""The states of one step on their way from the engine into the arena: stage 1."""

from collections.abc import Sequence
from math import prod

from torch import Tensor

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.landing import Landing, all_of
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Region, SnapshotGeometry, StateKind

_KV_DIMS = 4


class Snapshot:
    """One copy for each layer that is stored: its hidden states, or keys and values together.

    The rows of all sequences of the step lie together in ``region``, as
    ``SnapshotGeometry`` says (HCache, section 4.2.2).
    """

    def __init__(
        self, region: Region, state_format: StateFormat, row_count: int, copies: DeviceCopies
    ) -> None:
        geometry = SnapshotGeometry(state_format.states, row_count)
        self.region = region
        self.row_count = row_count
        self._format = state_format
        self._copies = copies
        self._landings: list[Landing] = []
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
                self._fetch((hidden,), layer)
            case StateKind.KV:
                self._fetch((keys, values), layer)
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

    def settle(self) -> None:
        """Returns when the region holds the whole snapshot; on any thread, after the last layer."""
        all_of(self._landings).wait()

    def _fetch(self, sources: Sequence[Tensor], layer: int) -> None:
        self._landings.append(self._copies.fetch(sources, self.rows(layer)))


def token_axis(shape: Sequence[int]) -> int:
    """The axis of the tokens in states of this shape: behind the halves of KV, else the first."""
    return 1 if len(shape) == _KV_DIMS else 0
