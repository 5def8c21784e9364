"""Brings sealed chunks to their devices and hands them over to the committer."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader, SliceSum, page_checksum
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import SliceLengths
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.transfer import submit_split
from kvstored.store.index.change import IndexChange
from kvstored.store.read.fragments import copy


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedChunk:
    """An immutable chunk in DRAM, as it will lie on the device.

    ``frame`` has at least ``geometry.extent_bytes`` bytes; its first page is free for
    the header, which depends on the extent. ``is_encoded`` is its layout's.
    """

    chunk: ChunkId
    parent_key: bytes
    layout_id: bytes
    class_bytes: int
    token_count: int
    geometry: ChunkGeometry
    slices: tuple[SliceSum, ...]
    frame: memoryview
    is_encoded: bool = False

    def change(self, record: ChunkRecord) -> IndexChange:
        """What the index stores of the chunk that was written with this record."""
        if not self.is_encoded:
            return IndexChange(puts=((self.chunk, record),))
        lengths = SliceLengths(
            lengths=self.geometry.slice_bytes, header_checksum=record.header_checksum
        )
        return IndexChange(puts=((self.chunk, record),), lengths=((self.chunk, lengths),))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTicket:
    """Where a sealed chunk is to be written, and under which epoch and stamp."""

    sealed: SealedChunk
    extent: Extent
    epoch: int
    stamp: int


class Writer:
    """Writes extents through the I/O engine. Thread-safe.

    ``write`` calls ``done`` once, on an engine thread, with the index record or the
    error. The bytes are then written, not flushed.
    """

    def __init__(self, *, engine: IoEngine, device_ids: tuple[bytes, ...]) -> None:
        self._engine = engine
        self._device_ids = device_ids
        self._pending = 0
        self._lock = threading.Lock()

    @property
    def pending_writes(self) -> int:
        """Chunks that are being written now."""
        return self._pending

    def write(self, ticket: WriteTicket, done: Callable[[ChunkRecord | DeviceError], None]) -> None:
        """Writes one chunk; returns at once."""
        record = self._place_header(ticket)
        with self._lock:
            self._pending += 1

        def written(error: DeviceError | None) -> None:
            with self._lock:
                self._pending -= 1
            done(record if error is None else error)

        submit_split(
            self._engine,
            IoRequest(
                device_index=ticket.extent.device_index,
                operation=Operation.WRITE,
                buffers=(ticket.sealed.frame[: ticket.sealed.geometry.extent_bytes],),
                offset=ticket.extent.offset,
                done=written,
            ),
        )

    def _place_header(self, ticket: WriteTicket) -> ChunkRecord:
        """Completes the frame with the header of its extent."""
        sealed, extent = ticket.sealed, ticket.extent
        page = ExtentHeader(
            device_id=self._device_ids[extent.device_index],
            offset=extent.offset,
            chunk=sealed.chunk,
            parent_key=sealed.parent_key,
            layout_id=sealed.layout_id,
            class_bytes=sealed.class_bytes,
            epoch=ticket.epoch,
            stamp=ticket.stamp,
            token_count=sealed.token_count,
            slices=sealed.slices,
            is_encoded=sealed.is_encoded,
        ).encode()
        copy(sealed.frame[:HEADER_BYTES], memoryview(page))
        return ChunkRecord(
            extent=extent,
            layout_id=sealed.layout_id,
            token_count=sealed.token_count,
            epoch=ticket.epoch,
            stamp=ticket.stamp,
            header_checksum=page_checksum(page),
        )
