"""The chunks on the devices: found, written, pinned, deleted, quarantined.

Invariants: an extent is freed only after the transaction that deletes its key is
committed and nobody has it pinned; a key is visible only after its record is
committed; a chunk on a failed device is not visible.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kvstored.counters import Counters
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent import Extent
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.format.slab_header import SlabHeader
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine
from kvstored.io.memory import AlignedMemory
from kvstored.store.allocator import Allocation, Allocator
from kvstored.store.committer import Commit, CommitLimits, Committer
from kvstored.store.device_set import DeviceSet
from kvstored.store.index import Index, IndexChange, IndexFailure
from kvstored.store.index_entry import Table
from kvstored.store.pieces import copy
from kvstored.store.read_stream import StoredChunk
from kvstored.store.writer import SealedChunk, Writer, WriteTicket
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)

LAYOUTS_MAX = 4096
"""Layouts in the index; those that come later are not told to offline tools."""

DELETION_BYTES = 32 * 1024
"""Pages that a deletion copies, generously.

A change that took every free page of the index would be its last: pages that one
transaction frees are reused only after the next.
"""
WRITE_ERRORS_MAX = 3
"""Writes in a row that a device may fail: behind them it counts as gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStoreParts:
    """What a chunk store is made of, opened and recovered."""

    device_set: DeviceSet
    index: Index
    allocator: Allocator
    engine: IoEngine
    commit_limits: CommitLimits
    next_stamp: int
    counters: Counters


class ChunkStore:
    """Stores immutable chunks on a device set.

    Thread-safe; no call waits for I/O unless it says so.
    ``on_stored`` and ``on_removed`` hear of every chunk that becomes visible on the
    devices, with its extent, or ceases to be; they are called on store threads.
    """

    def __init__(
        self,
        parts: ChunkStoreParts,
        *,
        on_stored: Callable[[ChunkId, Extent], None],
        on_removed: Callable[[ChunkId], None],
    ) -> None:
        self.device_set = parts.device_set
        self.index = parts.index
        self.allocator = parts.allocator
        self.counters = parts.counters
        self._on_stored = on_stored
        self._on_removed = on_removed
        self._next_stamp = parts.next_stamp
        self._lock = threading.RLock()
        # Held during the write of a slab header, which must not hold up pins.
        self._allocation_lock = threading.Lock()
        self._pins: Counter[ChunkId] = Counter()
        self._writing: dict[ChunkId, Future[Reason]] = {}
        self._deleting: dict[ChunkId, Future[bool]] = {}
        self._held_extents: dict[ChunkId, list[Extent]] = {}
        self._failed_devices: set[int] = set()
        self._write_errors: Counter[int] = Counter()
        self._slab_page = AlignedMemory(HEADER_BYTES)
        self._writer = Writer(engine=parts.engine, device_ids=parts.device_set.device_ids)
        self.committer = Committer(
            index=parts.index,
            devices=parts.device_set.devices,
            limits=parts.commit_limits,
            pending_writes=lambda: self._writer.pending_writes,
            on_device_error=self.device_failed,
        )

    @property
    def failed_devices(self) -> frozenset[int]:
        """Devices that have failed stop."""
        return frozenset(self._failed_devices)

    @property
    def next_stamp(self) -> int:
        """Above every stamp in the index."""
        return self._next_stamp

    @property
    def is_index_short(self) -> bool:
        """Whether chunks must be deleted before others are written. Raises IndexFailure."""
        return self.index.is_short

    @property
    def index_excess_chunks(self) -> int:
        """As many chunks as must be deleted for another one and may be deleted at once."""
        return min(1 - self.index.left_chunks, self.index.unused_bytes // DELETION_BYTES)

    def is_being_deleted(self, chunk: ChunkId) -> bool:
        """Whether the chunk is invisible because it is on its way out."""
        # Mostly nothing is, and then it need not be hashed.
        return bool(self._deleting) and chunk in self._deleting

    def find(self, chunks: Sequence[ChunkId]) -> list[ChunkRecord | None]:
        """Records of the visible chunks, None for the others."""
        # Before the look-up: a deletion that ends behind it leaves no mark, but a record.
        leaving = {chunk for chunk in chunks if self.is_being_deleted(chunk)}
        records = self.index.get_many(chunks)
        return [
            record
            if record and chunk not in leaving and not self._is_on_failed_device(record)
            else None
            for chunk, record in zip(chunks, records, strict=True)
        ]

    def source(self, chunk: ChunkId, record: ChunkRecord, geometry: ChunkGeometry) -> StoredChunk:
        """The chunk as a source for a reader; the caller has it pinned."""
        return StoredChunk(
            chunk=chunk,
            record=record,
            device_id=self.device_set.device_ids[record.extent.device_index],
            geometry=geometry,
        )

    def allocate(self, class_bytes: int, device_index: int) -> Extent | None:
        """Takes an extent, preferably on ``device_index``; None when there is no room.

        The first extent of a slab writes the slab's header and waits for that write,
        so that no chunk of the slab can become durable without it.
        """
        with self._allocation_lock:
            while True:
                with self._lock:
                    allocation = self.allocator.allocate(
                        class_bytes, device_index, excluded=self._failed_devices
                    )
                if allocation is None:
                    return None
                if allocation.opened_slab is None or self._open_slab(allocation):
                    return allocation.extent

    def free_unwritten(self, extent: Extent) -> None:
        """Returns an extent whose chunk never became visible."""
        with self._lock:
            self.allocator.free(extent)

    def write(self, sealed: SealedChunk, extent: Extent) -> Future[Reason]:
        """Writes a sealed chunk to its extent and commits it.

        The future resolves to UNSPECIFIED when the chunk is durable and visible, else
        to the reason; it never raises. The frame must not change before. A key has one
        extent: while another write of the chunk is under way this one is refused with
        DEADLINE, and when it is there already it is done.
        """
        outcome: Future[Reason] = Future()
        with self._lock:
            refusal = self._refusal(sealed.chunk)
            if refusal is not None:
                self.allocator.free(extent)
                outcome.set_result(refusal)
                return outcome
            self._writing[sealed.chunk] = outcome
            stamp = self._next_stamp
            self._next_stamp += 1
        ticket = WriteTicket(sealed=sealed, extent=extent, epoch=self.device_set.epoch, stamp=stamp)

        def written(result: ChunkRecord | DeviceError) -> None:
            if isinstance(result, DeviceError):
                self._write_failed(extent.device_index, result)
                self._end_write(sealed.chunk, extent, Reason.DEVICE_FAILED)
                return
            self._write_errors[extent.device_index] = 0
            record = result
            self.committer.submit(
                Commit(
                    change=sealed.change(record),
                    done=lambda reason: self._end_write(sealed.chunk, extent, reason),
                    device_indices=frozenset({extent.device_index}),
                    byte_count=extent.byte_count,
                )
            )

        self._writer.write(ticket, written)
        return outcome

    def remember_layout(self, layout: StateLayout) -> None:
        """Stores a layout beside the chunks, for offline tools, if there is room; returns at once.

        Clients can make up as many layouts as they like, and none is ever dropped.
        """
        if self.index.entry_count(Table.LAYOUTS) >= LAYOUTS_MAX:
            return
        self.committer.submit(Commit(change=IndexChange(layouts=(layout,)), done=lambda _: None))

    def pin(self, chunks: Iterable[ChunkId]) -> None:
        """Forbids that the chunks' extents are reused until they are unpinned."""
        with self._lock:
            self._pins.update(chunks)

    def unpin(self, chunks: Iterable[ChunkId]) -> None:
        """Takes back one pin of each chunk."""
        with self._lock:
            for chunk in chunks:
                self._pins[chunk] -= 1
                if self._pins[chunk] == 0:
                    del self._pins[chunk]
                    for extent in self._held_extents.pop(chunk, []):
                        self.allocator.free(extent)

    @property
    def pinned_count(self) -> int:
        """Chunks that somebody has pinned; each counts once."""
        return len(self._pins)

    def is_pinned(self, chunk: ChunkId) -> bool:
        """Whether anybody has the chunk pinned."""
        return chunk in self._pins

    def delete(self, chunk: ChunkId) -> Future[bool]:
        """Deletes a chunk; it is invisible at once.

        The future tells, when the deletion is durable, whether there was anything to
        delete. The extent is reused after that, and not before the last unpin.
        """
        with self._lock:
            if chunk in self._deleting:
                return self._deleting[chunk]
            outcome: Future[bool] = Future()
            self._deleting[chunk] = outcome
            writing = self._writing.get(chunk)
        if writing is None:
            self._delete_visible(chunk, outcome)
        else:
            writing.add_done_callback(lambda _: self._delete_visible(chunk, outcome))
        return outcome

    def is_being_written(self, chunk: ChunkId) -> bool:
        """Whether the chunk will be visible if nothing fails."""
        return chunk in self._writing and chunk not in self._deleting

    def pending(self, chunk: ChunkId) -> Future[Any] | None:
        """The deletion or the write of a chunk that is under way; None when it is settled."""
        with self._lock:
            return self._deleting.get(chunk) or self._writing.get(chunk)

    def quarantine(self, chunk: ChunkId, record: ChunkRecord) -> None:
        """Takes a damaged chunk out of service; its extent is kept for diagnosis."""
        with self._lock:
            if chunk in self._deleting or self.index.get(chunk) != record:
                return
            outcome: Future[bool] = Future()
            self._deleting[chunk] = outcome
        self.counters.add("quarantined_chunks")
        LOGGER.error("chunk %s is damaged at %s", chunk.key.hex(), record.extent)

        def done(reason: Reason) -> None:
            self._on_removed(chunk)
            with self._lock:
                del self._deleting[chunk]
            outcome.set_result(reason is Reason.UNSPECIFIED)

        self.committer.submit(Commit(change=IndexChange(quarantines=((chunk, record),)), done=done))

    def device_failed(
        self, device_index: int, error: DeviceError, *, is_gone: bool = False
    ) -> None:
        """Hears of a failed transfer or flush; final if the error is sticky or the device gone."""
        self.counters.add("device_errors")
        LOGGER.error("%s", error)
        if (error.sticky or is_gone) and device_index not in self._failed_devices:
            self._failed_devices.add(device_index)
            LOGGER.critical("%s has failed stop; its chunks are misses", error)

    def used_bytes(self, device_index: int) -> int:
        """Bytes of the extents in use on a device."""
        with self._lock:
            return self.allocator.used_bytes(device_index)

    def close(self) -> None:
        """Commits what was submitted; no other method may run any more."""
        self.committer.close()
        self._slab_page.close()

    def _is_on_failed_device(self, record: ChunkRecord) -> bool:
        return record.extent.device_index in self._failed_devices

    def _refusal(self, chunk: ChunkId) -> Reason | None:
        """Why a chunk need not or must not be written now."""
        if chunk in self._writing:
            return Reason.DEADLINE
        try:
            return None if self.find([chunk]) == [None] else Reason.UNSPECIFIED
        except IndexFailure:
            LOGGER.exception("a chunk cannot be written")
            return Reason.INTERNAL

    def _open_slab(self, allocation: Allocation) -> bool:
        """Writes the header of a slab; on failure the extent is free again."""
        extent, slab_index = allocation.extent, allocation.opened_slab
        assert slab_index is not None
        page = SlabHeader(
            device_id=self.device_set.device_ids[extent.device_index],
            slab_index=slab_index,
            class_bytes=extent.byte_count,
            epoch=self.device_set.epoch,
        ).encode()
        copy(self._slab_page.view, memoryview(page))
        device = self.device_set.devices[extent.device_index]
        try:
            device.writev([self._slab_page.view], self.allocator.slab_offset(slab_index))
        except DeviceError as error:
            self.device_failed(extent.device_index, error, is_gone=True)
            self.free_unwritten(extent)
            return False
        return True

    def _write_failed(self, device_index: int, error: DeviceError) -> None:
        """A device that fails one write after the other must not be given the next chunks."""
        with self._lock:
            self._write_errors[device_index] += 1
            is_gone = self._write_errors[device_index] >= WRITE_ERRORS_MAX
        self.device_failed(device_index, error, is_gone=is_gone)

    def _end_write(self, chunk: ChunkId, extent: Extent, reason: Reason) -> None:
        """Settles a write: the chunk is visible, or its extent is free again."""
        if reason is Reason.UNSPECIFIED:
            self.counters.add("stored_chunks")
            self.counters.add("stored_bytes", extent.byte_count)
            self._on_stored(chunk, extent)
        else:
            self.free_unwritten(extent)
        with self._lock:
            outcome = self._writing.pop(chunk)
        outcome.set_result(reason)

    def _delete_visible(self, chunk: ChunkId, outcome: Future[bool]) -> None:
        """Submits the deletion of a chunk that is marked for it and not being written."""
        try:
            record = self.index.get(chunk)
        except IndexFailure:
            LOGGER.exception("a chunk cannot be deleted")
            record = None
        if record is None:
            with self._lock:
                del self._deleting[chunk]
            outcome.set_result(False)
            return
        self.committer.submit(
            Commit(
                change=IndexChange(deletes=(chunk,)),
                done=lambda reason: self._deleted(chunk, record, reason, outcome),
            )
        )

    def _deleted(
        self, chunk: ChunkId, record: ChunkRecord, reason: Reason, outcome: Future[bool]
    ) -> None:
        # Before the mark goes: whoever looks sees the chunk neither here nor there.
        if reason is Reason.UNSPECIFIED:
            self._on_removed(chunk)
        with self._lock:
            del self._deleting[chunk]
            if reason is Reason.UNSPECIFIED:
                if chunk in self._pins:
                    self._held_extents.setdefault(chunk, []).append(record.extent)
                else:
                    self.allocator.free(record.extent)
        outcome.set_result(reason is Reason.UNSPECIFIED)
