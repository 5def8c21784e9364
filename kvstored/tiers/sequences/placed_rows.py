"""Rows of one item of an append, with the frames that they go to."""

from dataclasses import dataclass

from kvstored.store.write.append_rows import ChunkRows
from kvstored.store.write.row_copies import RowRange
from kvstored.tiers.chunks.frame import OpenFrame
from kvstored.tiers.chunks.requests import AppendItem
from kvstored.tiers.sequences.open_sequence import OpenSequence


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRows:
    """An item with a frame for each chunk of its rows; the first may be the open tail's own."""

    sequence: OpenSequence
    item: AppendItem
    rows: tuple[ChunkRows, ...]
    frames: list[OpenFrame]

    @property
    def new_frames(self) -> list[OpenFrame]:
        """Those that were opened for this item."""
        return [frame for frame in self.frames if frame is not self.sequence.frame]

    @property
    def ranges(self) -> list[RowRange]:
        """Where its rows go."""
        return [
            RowRange(frame.extent.offset, rows.first_token, rows.first_row, rows.token_count)
            for rows, frame in zip(self.rows, self.frames, strict=True)
        ]
