"""The states of one engine step as they lie in the arena: what an append takes rows from. Pure."""

from dataclasses import dataclass, field

from kvstored_contract.layout import LayoutError, StateKind, StateLayout
from kvstored_contract.limits import SNAPSHOT_ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class SnapshotGeometry:
    """Where each layer's block begins, counted from the snapshot's first byte.

    One block for each layer that is stored, in layer order: ``[rows, token_bytes]`` for
    HIDDEN, and two halves ``[2, rows, token_bytes / 2]`` for KV, all keys, then all values.
    ``offsets`` has one entry for each layer, a multiple of SNAPSHOT_ALIGNMENT_BYTES; a layer
    of kind NONE has an empty block. ``byte_count`` is the length of the whole snapshot.
    One snapshot of all layers makes saving one call for each step (HCache, section 4.2.2).

    Raises ValueError for less than one row, LayoutError for a layout with a codec, whose
    chunks have no rows, and when a layer of kind KV has an odd number of bytes a token,
    which has no halves.
    """

    layout: StateLayout
    row_count: int
    offsets: tuple[int, ...] = field(init=False)
    byte_count: int = field(init=False)

    def __post_init__(self) -> None:
        if self.row_count < 1:
            raise ValueError(f"a snapshot has at least one row, not {self.row_count}")
        if self.layout.is_encoded:
            raise LayoutError(
                f"chunks of codec {self.layout.codec!r} have no rows; put them complete"
            )
        offsets, offset = [], 0
        for index, layer in enumerate(self.layout.layers):
            if layer.kind is StateKind.KV and layer.token_bytes % 2:
                raise LayoutError(
                    f"layer {index} has {layer.token_bytes} bytes a token, which cannot be "
                    "halved into keys and values; rows of this layout cannot be appended"
                )
            offsets.append(offset)
            blocks = -(-layer.token_bytes * self.row_count // SNAPSHOT_ALIGNMENT_BYTES)
            offset += blocks * SNAPSHOT_ALIGNMENT_BYTES
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "byte_count", offset)
