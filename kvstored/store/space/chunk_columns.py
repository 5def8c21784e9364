"""Rows of chunks in compact columns: identity, place on the devices, last use, bundle. Pure.

Rows of chunks that are gone are used again. The owner serialises the calls.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

from kvstored.format.identity import CHUNK_ID_BYTES, ChunkId
from kvstored.store.space.slab_geometry import slab_number, slab_numbers

SEGMENT_ROWS = 1 << 16
UNUSED = (1 << 64) - 1
"""The time in a row that holds no chunk: later than every use."""
HELD = 1 << 63
"""Set in the time of a chunk that is out of the order of uses: later than every use, too."""
ROW_BITS = 16
ROW_MASK = SEGMENT_ROWS - 1
"""A row's index in its segment; ``row >> ROW_BITS`` is the segment's number."""


class Segment:
    """The columns of ``SEGMENT_ROWS`` rows.

    What was never used takes no memory, but for the times.
    """

    __slots__ = ("bundles", "has_bundles", "ids", "places", "positions", "times")

    def __init__(self) -> None:
        # Zeroed when it is touched; a bytearray would be zeroed, and resident, at once.
        self.ids = np.zeros(SEGMENT_ROWS * CHUNK_ID_BYTES, np.uint8).data
        self.places = np.zeros(SEGMENT_ROWS, np.uint64)
        self.times = np.full(SEGMENT_ROWS, UNUSED, np.uint64)
        self.bundles = np.zeros(SEGMENT_ROWS, np.uint32)
        self.positions = np.zeros(SEGMENT_ROWS, np.uint16)
        self.has_bundles = False
        """Whether any of its chunks ever was in one."""

    def id_rows(self) -> NDArray[np.uint8]:
        """The identities, of shape [SEGMENT_ROWS, CHUNK_ID_BYTES]; a view."""
        return np.frombuffer(self.ids, np.uint8).reshape(-1, CHUNK_ID_BYTES)

    def is_used(self) -> NDArray[np.bool_]:
        """Which rows hold a chunk; shape [SEGMENT_ROWS]."""
        used: NDArray[np.bool_] = self.times != UNUSED
        return used


class ChunkColumns:
    """Segments of rows. ``row_end`` is after the last row that ever held a chunk."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.row_end = 0
        self._free_rows = array("I")

    def __len__(self) -> int:
        """Rows that hold a chunk."""
        return self.row_end - len(self._free_rows)

    def take(self, identity: bytes) -> int:
        """A row for a chunk; its place and its time are the caller's to set."""
        if self._free_rows:
            row = self._free_rows.pop()
        else:
            row = self.row_end
            if row & ROW_MASK == 0:
                self.segments.append(Segment())
            self.row_end += 1
        start = (row & ROW_MASK) * CHUNK_ID_BYTES
        self.segments[row >> ROW_BITS].ids[start : start + CHUNK_ID_BYTES] = identity
        return row

    def give_back(self, row: int) -> None:
        """Empties a row."""
        self.segments[row >> ROW_BITS].times[row & ROW_MASK] = UNUSED
        self._free_rows.append(row)

    def append(
        self, identities: NDArray[np.uint8], places: NDArray[np.uint64], times: NDArray[np.uint64]
    ) -> None:
        """Adds chunks to columns that never lost one.

        Shapes [n, CHUNK_ID_BYTES], [n] and [n].
        """
        assert not self._free_rows
        start = 0
        while start < len(times):
            index = self.row_end & ROW_MASK
            if index == 0:
                self.segments.append(Segment())
            segment = self.segments[-1]
            count = min(SEGMENT_ROWS - index, len(times) - start)
            own, given = slice(index, index + count), slice(start, start + count)
            segment.id_rows()[own] = identities[given]
            segment.places[own] = places[given]
            segment.times[own] = times[given]
            self.row_end += count
            start += count

    def identity(self, row: int) -> bytes:
        """The encoded identity in a row."""
        start = (row & ROW_MASK) * CHUNK_ID_BYTES
        return self.segments[row >> ROW_BITS].ids[start : start + CHUNK_ID_BYTES].tobytes()

    def chunk(self, row: int) -> ChunkId:
        """The chunk in a row that is in use."""
        return ChunkId.decode(self.identity(row))

    def place(self, row: int) -> int:
        """The place of the chunk in a row that is in use."""
        return int(self.segments[row >> ROW_BITS].places[row & ROW_MASK])

    def slab(self, row: int) -> int:
        """The number of the slab in which that chunk lies."""
        return slab_number(self.place(row))

    def time(self, row: int) -> int:
        """When that chunk itself was used last."""
        return int(self.segments[row >> ROW_BITS].times[row & ROW_MASK])

    def rows_in_slab(self, slab: int, segments: range | None = None) -> list[int]:
        """The rows of the chunks in a slab, or those of them in some segments, by their numbers.

        Looks at every row, a nanosecond each.
        """
        numbers = range(len(self.segments)) if segments is None else segments
        return [
            (number << ROW_BITS) + index
            for number, segment in zip(
                numbers, self.segments[numbers.start : numbers.stop], strict=False
            )
            for index in np.flatnonzero(
                (slab_numbers(segment.places) == slab) & segment.is_used()
            ).tolist()
        ]

    def chunks_in_rows(self, first: int, end: int) -> list[ChunkId]:
        """The chunks in rows ``first`` to ``end``, that one excluded."""
        rows = range(first, min(end, self.row_end))
        return [self.chunk(row) for row in rows if self.time(row) != UNUSED]

    def places(self) -> NDArray[np.uint64]:
        """The place of every chunk, of shape [n], in any order."""
        parts = [segment.places[segment.is_used()] for segment in self.segments]
        return np.concatenate([np.zeros(0, np.uint64), *parts])
