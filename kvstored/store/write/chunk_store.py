"""The chunks on the devices: found, deleted, quarantined.

Invariants: an extent is freed only after the transaction that deletes its key is
committed and nobody has it pinned; a key is visible only after its record is
committed; a chunk on a failed device is not visible.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored.store.index.entry import Table
from kvstored.store.index.index import IndexChange, IndexFailure
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.write.chunk_pins import ChunkPins
from kvstored.store.write.chunk_store_parts import ChunkStoreParts
from kvstored.store.write.chunk_writes import ChunkWrites
from kvstored.store.write.committer import Commit
from kvstored.store.write.device_failures import DeviceFailures
from kvstored.store.write.extents import Extents, SlabOpenings
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)

LAYOUTS_MAX = 4096
"""Layouts in the index; offline tools know nothing of those that come later."""

DELETION_BYTES = 32 * 1024
"""Pages that a deletion copies, generously.

A change that took every free page of the index would be its last: pages that one
transaction frees are reused only after the next.
"""


class DeletionError(RuntimeError):
    """A chunk could not be deleted and is still stored; ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(
            f"the index could not be changed ({reason.name}): chunks that should be deleted are "
            "still stored; delete them again when the daemon's log says that it can be written"
        )
        self.reason = reason


class ChunkStore:
    """Immutable chunks on a device set: what is visible, and what leaves.

    ``extents``, ``failures``, ``pins`` and ``writes`` have the rest. Thread-safe; no call
    waits for I/O unless it says so.
    ``on_stored`` and ``on_removed`` hear of every chunk that becomes visible on the
    devices, with its extent, or ceases to be; they are called on store threads. ``on_device_lost``
    hears that a device has failed stop: all its chunks are misses from now on.
    """

    def __init__(
        self,
        parts: ChunkStoreParts,
        *,
        on_stored: Callable[[ChunkId, Extent], None],
        on_removed: Callable[[ChunkId], None],
        on_device_lost: Callable[[], None],
    ) -> None:
        self.device_set = parts.device_set
        self.index = parts.index
        self.counters = parts.counters
        self._on_removed = on_removed
        self._deleting: dict[ChunkId, Future[bool]] = {}
        # One lock for pins, writes and deletions: which of them a chunk has is one question.
        self._lock = threading.RLock()
        self.failures = DeviceFailures(counters=parts.counters, on_lost=on_device_lost)
        self.extents = Extents(
            allocator=parts.allocator,
            openings=SlabOpenings(engine=parts.engine, device_set=parts.device_set),
            failures=self.failures,
        )
        self.pins = ChunkPins(self.extents, self._lock)
        self.writes = ChunkWrites(
            parts,
            extents=self.extents,
            failures=self.failures,
            lock=self._lock,
            find=self.find,
            is_leaving=self.is_being_deleted,
            on_stored=on_stored,
        )
        self.committer = self.writes.committer

    @property
    def is_index_short(self) -> bool:
        """Whether chunks must be deleted before others are written. Raises IndexFailure."""
        return self.index.usage.is_short

    @property
    def index_excess_chunks(self) -> int:
        """As many chunks as must be deleted for another one and may be deleted at once."""
        return min(
            1 - self.index.usage.left_chunks, self.index.usage.unused_bytes // DELETION_BYTES
        )

    def is_being_deleted(self, chunk: ChunkId) -> bool:
        """Whether the chunk is invisible because it is on its way out."""
        # Mostly nothing is, and then it need not be hashed.
        return bool(self._deleting) and chunk in self._deleting

    def find(self, chunks: Sequence[ChunkId]) -> list[ChunkRecord | None]:
        """Records of the visible chunks, None for the others."""
        # Before the look-up: a deletion that ends after it leaves no mark, but a record.
        leaving = {chunk for chunk in chunks if self.is_being_deleted(chunk)}
        records = self.index.get_many(chunks)
        failed = self.failures.devices
        return [
            record
            if record and chunk not in leaving and record.extent.device_index not in failed
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

    def remember_layout(self, layout: StateLayout) -> None:
        """Stores a layout beside the chunks, for offline tools, if there is room; returns at once.

        Clients can make up as many layouts as they like, and none is ever dropped.
        """
        if self.index.usage.entry_count(Table.LAYOUTS) >= LAYOUTS_MAX:
            return
        self.committer.submit(Commit(change=IndexChange(layouts=(layout,)), done=lambda _: None))

    def delete(self, chunk: ChunkId) -> Future[bool]:
        """Deletes a chunk; it is invisible at once.

        The future tells, when the deletion is durable, whether there was anything to
        delete. The extent is reused after that, and not before the last unpin. A deletion that
        cannot be made durable ends with DeletionError, and the chunk is visible again.
        """
        with self._lock:
            if (pending := self._deleting.get(chunk)) is not None:
                return pending
            outcome = self._deleting[chunk] = Future[bool]()
            writing = self.writes.pending(chunk)
        if writing is None:
            self._delete_visible(chunk, outcome)
        else:
            writing.add_done_callback(lambda _: self._delete_visible(chunk, outcome))
        return outcome

    def evict(self, chunks: Sequence[ChunkId], *, is_whole: bool = False) -> list[Future[bool]]:
        """Deletes those of the chunks that nobody has pinned; with ``is_whole`` all or none.

        Whether a chunk is pinned and that it leaves is decided under the lock that pins are
        counted under: who pins one sees either that it stays or that it is on its way out.
        The futures are those of ``delete``.
        """
        marked: dict[ChunkId, Future[bool]] = {}
        with self._lock:
            pinned = self.pins.among(chunks)
            staying = [
                chunk
                for chunk in chunks
                if chunk in pinned or self.writes.pending(chunk) is not None
            ]
            if is_whole and staying:
                return []
            going = set(chunks).difference(staying)
            leaving = [self._deleting[chunk] for chunk in going if chunk in self._deleting]
            for chunk in going:
                if chunk not in self._deleting:
                    self._deleting[chunk] = marked[chunk] = Future()
        self.counters.add("evicted_chunks", len(marked))
        for chunk, outcome in marked.items():
            self._delete_visible(chunk, outcome)
        return leaving + list(marked.values())

    def pending(self, chunk: ChunkId) -> Future[Any] | None:
        """The deletion or the write of a chunk that is under way; None when it is settled."""
        with self._lock:
            return self._deleting.get(chunk) or self.writes.pending(chunk)

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
            # Else it is where it was, and is suspected again.
            if reason is Reason.UNSPECIFIED:
                self._on_removed(chunk)
            with self._lock:
                del self._deleting[chunk]
            outcome.set_result(reason is Reason.UNSPECIFIED)

        self.committer.submit(Commit(change=IndexChange(quarantines=((chunk, record),)), done=done))

    def close(self) -> None:
        """Commits what was submitted; no other method may run any more."""
        self.committer.close()

    def _delete_visible(self, chunk: ChunkId, outcome: Future[bool]) -> None:
        """Submits the deletion of a chunk that is marked for it and not being written."""
        try:
            record = self.index.get(chunk)
        except IndexFailure:
            LOGGER.exception("a chunk cannot be deleted")
            with self._lock:
                del self._deleting[chunk]
            outcome.set_exception(DeletionError(Reason.INTERNAL))
            return
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
        # Before the mark goes: a look-up sees the chunk neither here nor there.
        if reason is Reason.UNSPECIFIED:
            self._on_removed(chunk)
        with self._lock:
            del self._deleting[chunk]
            if reason is Reason.UNSPECIFIED:
                self.pins.free(chunk, record.extent)
        if reason is Reason.UNSPECIFIED:
            outcome.set_result(True)
        else:
            outcome.set_exception(DeletionError(reason))
