"""The chunks on the devices in compact memory: what each is, where it lies, when it was used.

A *row* is one chunk (``chunk_columns``); a map finds rows by identities, a census of the slabs
knows their size classes, and ``use_times`` which chunks are used together. Together this takes
about 86 bytes a chunk. Pure bookkeeping; the owner serialises the calls.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import starmap
from operator import mul

import numpy as np
from numpy.typing import NDArray

from kvstored.format.geometry import Extent
from kvstored.format.identity import CHUNK_ID_BYTES, ChunkId
from kvstored.store.space.chunk_columns import (
    HELD,
    ROW_BITS,
    ROW_MASK,
    SEGMENT_ROWS,
    UNUSED,
    ChunkColumns,
)
from kvstored.store.space.claim_block import ClaimBlock
from kvstored.store.space.key_map import ABSENT, TAG_BITS, KeyMap, entries_of
from kvstored.store.space.slab_census import SlabCensus
from kvstored.store.space.slab_geometry import (
    SlabGeometry,
    place_of,
    slab_numbers,
    slab_position,
)
from kvstored.store.space.use_times import UseTimes

__all__ = ["ABSENT", "HELD", "SEGMENT_ROWS", "UNUSED", "ChunkTable"]

_WORDS = struct.Struct("<12I")
_TAG_MASK = (1 << 64) - 1


class ChunkTable:
    """All chunks on the devices. ``clock`` is the time of the next use.

    It begins with the rows of ``columns``, whose slabs have their size classes in ``slabs``; both
    are the table's from then on. ``generator`` makes the secret of the map: without it nobody can
    choose keys that are slow to find.
    """

    def __init__(
        self,
        geometry: SlabGeometry,
        *,
        columns: ChunkColumns | None = None,
        slabs: SlabCensus | None = None,
        generator: np.random.Generator | None = None,
    ) -> None:
        assert (columns is None) == (slabs is None)
        self.geometry = geometry
        self.clock = 1
        self.columns = ChunkColumns() if columns is None else columns
        self.times = UseTimes(self.columns)
        self.slabs = SlabCensus(geometry) if slabs is None else slabs
        secret = generator or np.random.default_rng()
        self._multipliers = secret.integers(0, 1 << 64, _WORDS.size // 4, dtype=np.uint64)
        self._multiplier_list: list[int] = self._multipliers.tolist()
        self._map = KeyMap()
        if columns is not None:
            self._index_rows()

    def __len__(self) -> int:
        """Chunks in the table."""
        return len(self.columns)

    def insert(self, chunk: ChunkId, extent: Extent, *, time: int | None = None) -> None:
        """Adds a chunk, used now or at ``time``; one that is there has moved to this extent."""
        slab_index, position = self.geometry.locate(extent)
        slab = self.slabs.number(extent.device_index, slab_index)
        identity = chunk.encode()
        row = self._row(identity)
        if row == ABSENT:
            row = self.columns.take(identity)
            self._map.insert(self._tag(identity), row)
        else:
            self.slabs.leave(self.columns.slab(row))
        segment, index = self.columns.segments[row >> ROW_BITS], row & ROW_MASK
        segment.places[index] = place_of(slab, position)
        self.slabs.enter(slab, extent.byte_count)
        if time is None:
            self._use(row)
        else:
            segment.times[index] = time

    def remove(self, chunk: ChunkId, *, time: int | None = None) -> bool:
        """Forgets a chunk, with ``time`` only if that is when it was used last.

        False when it is not there, or stays.
        """
        identity = chunk.encode()
        row = self._row(identity)
        if row == ABSENT or (time is not None and self.times.of(row) != time):
            return False
        self.slabs.leave(self.columns.slab(row))
        self._map.remove(self._tag(identity), row)
        self.times.leave(row)
        self.columns.give_back(row)
        return True

    def touch(
        self, identities: Sequence[bytes], *, holds: bool = False, together: bool = False
    ) -> None:
        """Hears that chunks are used now, one after the other; ignores those not there.

        With ``holds`` they are out of the order of uses from now on, until they are touched again.
        With ``together`` a sequence uses them, in its order: they are one bundle from now on, of
        which a use of one is a use of all. None of these is held.
        """
        rows = [row for row in self.rows(identities) if row != ABSENT]
        if together:
            if rows:
                # A time for each: ``blocks`` tells them apart by their positions.
                self.clock += len(rows)
                self.times.use_together(list(dict.fromkeys(rows)), self.clock - 1)
            return
        for row in rows:
            if holds:
                self.times.hold(row, self.clock)
                self.clock += 1
            else:
                self._use(row)

    def put_together(self, identities: Sequence[bytes], *, before: int) -> None:
        """Makes chunks of a sequence one bundle, those not used since the clock was ``before``.

        That is no use. Ignores those not there.
        """
        rows = [row for row in self.rows(identities) if row != ABSENT]
        if rows:
            self.times.put_together(list(dict.fromkeys(rows)), before=before)

    def rows(self, identities: Sequence[bytes]) -> list[int]:
        """The row of each chunk, by its encoded identity; ABSENT for those that are not here."""
        if not identities:
            return []
        tags = self._tags(np.frombuffer(b"".join(identities), np.uint8))
        rows: list[int] = self._map.first_rows(tags).tolist()
        segments = self.columns.segments
        for number, row in enumerate(rows):
            if row >= 0:
                start = (row & ROW_MASK) * CHUNK_ID_BYTES
                known = segments[row >> ROW_BITS].ids[start : start + CHUNK_ID_BYTES]
                if known.tobytes() == identities[number]:
                    continue
            if row != ABSENT:
                rows[number] = self._row(identities[number])
        return rows

    def device(self, row: int) -> int:
        """The device of the chunk in a row that is in use."""
        return self.slabs.place(self.columns.slab(row))[0]

    def use(self, row: int) -> tuple[ChunkId, int]:
        """The chunk in a row that is in use, and the time of its last use.

        For one that is held it is when that began, with HELD set.
        """
        return self.columns.chunk(row), self.times.of(row)

    def slab(self, chunk: ChunkId) -> int | None:
        """The number of the slab in which a chunk lies; None when it is not there."""
        row = self._row(chunk.encode())
        return None if row == ABSENT else self.columns.slab(row)

    def claims_in_slab(self, slab: int) -> list[tuple[ChunkId, Extent, int]]:
        """Chunk, extent and time of use of all chunks in a slab. Looks at every row."""
        class_bytes = self.slabs.class_bytes_of(slab)
        device_index, slab_index = self.slabs.place(slab)
        claims = []
        for row in self.columns.rows_in_slab(slab):
            position = slab_position(self.columns.place(row))
            extent = self.geometry.extent(device_index, slab_index, position, class_bytes)
            chunk, time = self.use(row)
            claims.append((chunk, extent, time))
        return claims

    def row_count(self, class_bytes: int | None) -> int:
        """Chunks of one size class, or of all."""
        return len(self) if class_bytes is None else self.slabs.count_of_class(class_bytes)

    def is_of_class(
        self, segment: int, indices: NDArray[np.int64], class_bytes: int | None
    ) -> NDArray[np.bool_]:
        """Which rows of a segment, by their index in it, have this size class; shapes [n], [n].

        None is for any class.
        """
        if class_bytes is None:
            return np.ones(len(indices), np.bool_)
        slabs = slab_numbers(self.columns.segments[segment].places[indices])
        is_wanted: NDArray[np.bool_] = self.slabs.classes_of(slabs) == class_bytes
        return is_wanted

    def blocks(self) -> Iterator[ClaimBlock]:
        """Every chunk with its extent and the time of its last use, or hold, in blocks."""
        for number, segment in enumerate(self.columns.segments):
            used = segment.is_used()
            places = segment.places[used]
            byte_counts = self.slabs.classes_of(slab_numbers(places))
            devices, offsets = self.geometry.extents(places, byte_counts)
            yield ClaimBlock(
                identities=segment.id_rows()[used],
                devices=devices,
                offsets=offsets,
                byte_counts=byte_counts,
                stamps=self.times.single(number)[used],
            )

    def _index_rows(self) -> None:
        """Makes the rows that the table began with findable, and counts them."""
        entries = np.empty(self.columns.row_end, np.uint64)
        counts = np.zeros(self.geometry.slab_count, np.int64)
        for number, segment in enumerate(self.columns.segments):
            first = number << ROW_BITS
            count = min(SEGMENT_ROWS, self.columns.row_end - first)
            tags = self._tags(segment.id_rows()[:count].reshape(-1))
            entries[first : first + count] = entries_of(tags, first)
            counts += np.bincount(slab_numbers(segment.places[:count]), minlength=len(counts))
        self._map.fill(entries)
        self.slabs.recount(counts)

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
            if self.columns.identity(row) == identity:
                return row
        return ABSENT

    def _use(self, row: int) -> None:
        self.times.use(row, self.clock)
        self.clock += 1
