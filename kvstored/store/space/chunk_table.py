"""The chunks on the devices in compact memory: what each is, where it lies, when it was used.

A *row* is one chunk: its identity, its place and the time of its last use, in arrays of
``SEGMENT_ROWS`` rows. Rows of chunks that are gone are used again. With the map from
identities to rows this takes about 80 bytes a chunk. Pure bookkeeping; the owner
serialises the calls.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import starmap
from operator import mul

import numpy as np
from numpy.typing import NDArray

from kvstored.format.extent import Extent
from kvstored.format.identity import CHUNK_ID_BYTES, ChunkId
from kvstored.store.space.claim_block import ClaimBlock
from kvstored.store.space.key_map import ABSENT, TAG_BITS, KeyMap, entries_of
from kvstored.store.space.slab_geometry import (
    SlabGeometry,
    place_of,
    slab_number,
    slab_numbers,
    slab_position,
)

__all__ = ["ABSENT", "SEGMENT_ROWS", "UNUSED", "ChunkTable"]

SEGMENT_ROWS = 1 << 16
STRANDED_SLABS_MAX = 64
"""Slabs that one look for stranded room names."""
UNUSED = (1 << 64) - 1
"""The time in a row that holds no chunk: later than every use."""
_ROW_BITS = 16
_ROW_MASK = SEGMENT_ROWS - 1
_WORDS = struct.Struct("<12I")
_TAG_MASK = (1 << 64) - 1


class _Segment:
    """The columns of ``SEGMENT_ROWS`` rows; memory that was never used is not resident."""

    __slots__ = ("ids", "places", "times")

    def __init__(self) -> None:
        self.ids = bytearray(SEGMENT_ROWS * CHUNK_ID_BYTES)
        self.places = np.zeros(SEGMENT_ROWS, np.uint64)
        self.times = np.full(SEGMENT_ROWS, UNUSED, np.uint64)

    def id_rows(self) -> NDArray[np.uint8]:
        """The identities, of shape [SEGMENT_ROWS, CHUNK_ID_BYTES]; a view."""
        return np.frombuffer(self.ids, np.uint8).reshape(-1, CHUNK_ID_BYTES)


class ChunkTable:
    """All chunks on the devices. ``clock`` is the time of the next use.

    ``generator`` makes the secret of the map: without it nobody can choose keys that
    are slow to find.
    """

    def __init__(
        self,
        geometry: SlabGeometry,
        *,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.geometry = geometry
        self.clock = 1
        secret = generator or np.random.default_rng()
        self._multipliers = secret.integers(0, 1 << 64, _WORDS.size // 4, dtype=np.uint64)
        self._multiplier_list: list[int] = self._multipliers.tolist()
        self._segments: list[_Segment] = []
        self._row_count = 0
        self._free_rows = array("I")
        self._map = KeyMap()
        self._slab_class_bytes = np.zeros(geometry.slab_count, np.uint64)
        self._slab_rows = np.zeros(geometry.slab_count, np.int64)
        self._class_rows: dict[int, int] = {}
        self._first_slabs = geometry.first_slabs
        self._slab_devices: list[int] = np.repeat(
            np.arange(len(geometry.slab_counts)), geometry.slab_counts
        ).tolist()

    def __len__(self) -> int:
        """Chunks in the table."""
        return self._row_count - len(self._free_rows)

    def insert(self, chunk: ChunkId, extent: Extent, *, time: int | None = None) -> None:
        """Adds a chunk, used now or at ``time``; one that is there has moved to this extent."""
        slab_index, position = self.geometry.locate(extent)
        slab = self._first_slabs[extent.device_index] + slab_index
        identity = chunk.encode()
        row = self._row(identity)
        if row == ABSENT:
            row = self._new_row(identity)
        else:
            self._leave_slab(row)
        segment, index = self._segments[row >> _ROW_BITS], row & _ROW_MASK
        segment.places[index] = place_of(slab, position)
        self._slab_class_bytes[slab] = extent.byte_count
        self._slab_rows[slab] += 1
        self._class_rows[extent.byte_count] = self._class_rows.get(extent.byte_count, 0) + 1
        if time is None:
            self._use(segment, index)
        else:
            segment.times[index] = time

    def remove(self, chunk: ChunkId, *, time: int | None = None) -> bool:
        """Forgets a chunk, with ``time`` only if that is when it was used last.

        False when it is not there, or stays.
        """
        identity = chunk.encode()
        row = self._row(identity)
        if row == ABSENT:
            return False
        times, index = self._segments[row >> _ROW_BITS].times, row & _ROW_MASK
        if time is not None and times[index] != time:
            return False
        self._leave_slab(row)
        times[index] = UNUSED
        self._map.remove(self._tag(identity), row)
        self._free_rows.append(row)
        return True

    def touch(self, identities: Sequence[bytes]) -> None:
        """Hears that chunks are used now, one after the other; ignores those not there."""
        for row in self.rows(identities):
            if row != ABSENT:
                self._use(self._segments[row >> _ROW_BITS], row & _ROW_MASK)

    def rows(self, identities: Sequence[bytes]) -> list[int]:
        """The row of each chunk, by its encoded identity; ABSENT for those that are not here."""
        if not identities:
            return []
        tags = self._tags(np.frombuffer(b"".join(identities), np.uint8))
        rows: list[int] = self._map.first_rows(tags).tolist()
        segments = self._segments
        for number, row in enumerate(rows):
            if row >= 0:
                start = (row & _ROW_MASK) * CHUNK_ID_BYTES
                known = segments[row >> _ROW_BITS].ids[start : start + CHUNK_ID_BYTES]
                if known == identities[number]:
                    continue
            if row != ABSENT:
                rows[number] = self._row(identities[number])
        return rows

    def device(self, row: int) -> int:
        """The device of the chunk in a row that is in use."""
        return self._slab_devices[self._slab(row)]

    def use(self, row: int) -> tuple[ChunkId, int]:
        """The chunk in a row that is in use, and the time of its last use."""
        segment = self._segments[row >> _ROW_BITS]
        return self._chunk(row), int(segment.times[row & _ROW_MASK])

    def slab(self, chunk: ChunkId) -> tuple[int, int] | None:
        """Device index and slab index of a chunk; None when it is not there."""
        row = self._row(chunk.encode())
        if row == ABSENT:
            return None
        return self._slab_place(self._slab(row))

    def chunk_count_in_slab(self, device_index: int, slab_index: int) -> int:
        """Chunks that lie in one slab."""
        return int(self._slab_rows[self._first_slabs[device_index] + slab_index])

    def chunks_in_slab(self, device_index: int, slab_index: int) -> list[ChunkId]:
        """The chunks that lie in one slab. Looks at every row, a nanosecond each."""
        slab = self._first_slabs[device_index] + slab_index
        return [self._chunk(row) for row in self._rows_in_slab(slab)]

    def stranded_slabs(self, class_bytes: int, share_max: float) -> list[tuple[int, int]]:
        """Device and slab index of the slabs with the most room for other classes only.

        Empty unless their free extents add up to more than ``share_max`` of all slabs.
        """
        owners = self._slab_class_bytes.astype(np.int64)
        extent_counts = self.geometry.class_bytes_max // np.maximum(owners, 1)
        is_other = (self._slab_rows > 0) & (owners != class_bytes)
        free_bytes = np.where(is_other, (extent_counts - self._slab_rows) * owners, 0)
        if free_bytes.sum() <= share_max * self.geometry.slab_bytes * self.geometry.slab_count:
            return []
        emptiest = np.argsort(-free_bytes, kind="stable")[:STRANDED_SLABS_MAX]
        return [self._slab_place(int(slab)) for slab in emptiest if free_bytes[slab]]

    def class_bytes_of_chunk(self, chunk: ChunkId) -> int:
        """The size class of a chunk; 0 when it is not there."""
        row = self._row(chunk.encode())
        return 0 if row == ABSENT else self.class_bytes_of(self._slab(row))

    def claims_in_slab(self, slab: int) -> list[tuple[ChunkId, Extent, int]]:
        """Chunk, extent and time of use of all chunks in a slab, by its number."""
        class_bytes = self.class_bytes_of(slab)
        device_index = self._slab_devices[slab]
        slab_index = slab - self._first_slabs[device_index]
        claims = []
        for row in self._rows_in_slab(slab):
            position = slab_position(self._place(row))
            extent = self.geometry.extent(device_index, slab_index, position, class_bytes)
            chunk, time = self.use(row)
            claims.append((chunk, extent, time))
        return claims

    # What a policy needs to know of the rows.

    @property
    def row_end(self) -> int:
        """Behind all rows that hold chunks."""
        return self._row_count

    def chunks_in_rows(self, first: int, end: int) -> list[ChunkId]:
        """The chunks in rows ``first`` to ``end``, that one excluded."""
        rows = range(first, min(end, self._row_count))
        return [
            self._chunk(row)
            for row in rows
            if self._segments[row >> _ROW_BITS].times[row & _ROW_MASK] != UNUSED
        ]

    @property
    def times(self) -> list[NDArray[np.uint64]]:
        """Time of last use of all rows, in arrays of ``SEGMENT_ROWS``; UNUSED without a chunk."""
        return [segment.times for segment in self._segments]

    def row_count(self, class_bytes: int | None) -> int:
        """Chunks of one size class, or of all."""
        return len(self) if class_bytes is None else self._class_rows.get(class_bytes, 0)

    def is_of_class(
        self, segment: int, indices: NDArray[np.int64], class_bytes: int
    ) -> NDArray[np.bool_]:
        """Which rows of a segment, by their index in it, have this size class; shapes [n], [n]."""
        slabs = slab_numbers(self._segments[segment].places[indices])
        is_wanted: NDArray[np.bool_] = self._slab_class_bytes[slabs] == class_bytes
        return is_wanted

    # Many chunks at once.

    def append(
        self, identities: NDArray[np.uint8], places: NDArray[np.uint64], times: NDArray[np.uint64]
    ) -> None:
        """Adds chunks that are not there, to a table that never lost one.

        Shapes [n, CHUNK_ID_BYTES], [n] and [n]. The size classes of their slabs must be
        known by ``set_class_bytes``. ``index_rows`` must be called after the last ones.
        """
        start = 0
        while start < len(times):
            index = self._row_count & _ROW_MASK
            if index == 0:
                self._segments.append(_Segment())
            segment = self._segments[-1]
            count = min(SEGMENT_ROWS - index, len(times) - start)
            own, given = slice(index, index + count), slice(start, start + count)
            segment.id_rows()[own] = identities[given]
            segment.places[own] = places[given]
            segment.times[own] = times[given]
            self._row_count += count
            start += count

    def set_class_bytes(
        self, places: NDArray[np.uint64], class_bytes: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Sets the size class of slabs that have none yet; tells where it is another one.

        Shapes [n], [n] and [n].
        """
        slabs = slab_numbers(places)
        is_new = self._slab_class_bytes[slabs] == 0
        self._slab_class_bytes[slabs[is_new]] = class_bytes[is_new]
        differs: NDArray[np.bool_] = self._slab_class_bytes[slabs] != class_bytes
        return differs

    def forget_class_bytes(self, slab: int) -> None:
        """Lets a slab without chunks, by its number, have any size class again."""
        assert self._slab_rows[slab] == 0
        self._slab_class_bytes[slab] = 0

    def index_rows(self) -> None:
        """Makes the rows that were appended findable."""
        entries = np.empty(self._row_count, np.uint64)
        self._slab_rows[:] = 0
        for number, segment in enumerate(self._segments):
            first = number << _ROW_BITS
            count = min(SEGMENT_ROWS, self._row_count - first)
            tags = self._tags(segment.id_rows()[:count].reshape(-1))
            entries[first : first + count] = entries_of(tags, first)
            self._slab_rows += np.bincount(
                slab_numbers(segment.places[:count]), minlength=len(self._slab_rows)
            )
        self._map.fill(entries)
        classes = np.unique(self._slab_class_bytes[self._slab_rows > 0])
        self._class_rows = {
            int(class_bytes): int(self._slab_rows[self._slab_class_bytes == class_bytes].sum())
            for class_bytes in classes
        }

    def places(self) -> NDArray[np.uint64]:
        """The place of every chunk, of shape [n], in any order."""
        parts = [segment.places[_used(segment)] for segment in self._segments]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    def class_bytes_of(self, slab: int) -> int:
        """The size class of a slab, by its number; 0 while it is not known."""
        return int(self._slab_class_bytes[slab])

    def blocks(self) -> Iterator[ClaimBlock]:
        """Every chunk with its extent and the time of its last use, in blocks."""
        for segment in self._segments:
            used = _used(segment)
            places = segment.places[used]
            byte_counts = self._slab_class_bytes[slab_numbers(places)]
            devices, offsets = self.geometry.extents(places, byte_counts)
            yield ClaimBlock(
                identities=segment.id_rows()[used],
                devices=devices,
                offsets=offsets,
                byte_counts=byte_counts,
                stamps=segment.times[used],
            )

    def _tag(self, identity: bytes) -> int:
        """Multiply-add over 32-bit words with secret factors: universal, so no key is a bad one."""
        words = zip(_WORDS.unpack(identity), self._multiplier_list, strict=True)
        total: int = sum(starmap(mul, words))
        return (total & _TAG_MASK) >> TAG_BITS

    def _tags(self, identities: NDArray[np.uint8]) -> NDArray[np.uint64]:
        """``_tag`` of identities that lie one behind the other."""
        words = identities.view("<u4").reshape(-1, _WORDS.size // 4)
        tags: NDArray[np.uint64] = (words @ self._multipliers) >> np.uint64(TAG_BITS)
        return tags

    def _row(self, identity: bytes) -> int:
        for row in self._map.rows(self._tag(identity)):
            if self._identity(row) == identity:
                return row
        return ABSENT

    def _chunk(self, row: int) -> ChunkId:
        return ChunkId.decode(bytes(self._identity(row)))

    def _identity(self, row: int) -> bytearray:
        start = (row & _ROW_MASK) * CHUNK_ID_BYTES
        return self._segments[row >> _ROW_BITS].ids[start : start + CHUNK_ID_BYTES]

    def _slab_place(self, slab: int) -> tuple[int, int]:
        """Device index and slab index of a slab, by its number."""
        device_index = self._slab_devices[slab]
        return device_index, slab - self._first_slabs[device_index]

    def _slab(self, row: int) -> int:
        return slab_number(self._place(row))

    def _place(self, row: int) -> int:
        return int(self._segments[row >> _ROW_BITS].places[row & _ROW_MASK])

    def _rows_in_slab(self, slab: int) -> list[int]:
        return [
            (number << _ROW_BITS) + index
            for number, segment in enumerate(self._segments)
            for index in np.flatnonzero(
                (slab_numbers(segment.places) == slab) & _used(segment)
            ).tolist()
        ]

    def _new_row(self, identity: bytes) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
        else:
            row = self._row_count
            if row & _ROW_MASK == 0:
                self._segments.append(_Segment())
            self._row_count += 1
        start = (row & _ROW_MASK) * CHUNK_ID_BYTES
        self._segments[row >> _ROW_BITS].ids[start : start + CHUNK_ID_BYTES] = identity
        self._map.insert(self._tag(identity), row)
        return row

    def _leave_slab(self, row: int) -> None:
        slab = self._slab(row)
        self._slab_rows[slab] -= 1
        self._class_rows[int(self._slab_class_bytes[slab])] -= 1

    def _use(self, segment: _Segment, index: int) -> None:
        segment.times[index] = self.clock
        self.clock += 1


def _used(segment: _Segment) -> NDArray[np.bool_]:
    used: NDArray[np.bool_] = segment.times != UNUSED
    return used
