"""Chunks on their way to the devices: written, then committed. A key has one extent."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.store.index.index import IndexFailure
from kvstored.store.write.chunk_store_parts import ChunkStoreParts
from kvstored.store.write.committer import Commit, Committer
from kvstored.store.write.device_failures import DeviceFailures
from kvstored.store.write.extents import Extents
from kvstored.store.write.writer import SealedChunk, Writer, WriteTicket
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)


class ChunkWrites:
    """Writes and commits sealed chunks. Thread-safe; no call waits for I/O.

    ``find`` answers the records of visible chunks. ``on_stored`` hears, on a store thread, of
    every chunk that becomes visible, with its extent. ``lock`` is the one under which chunks
    are chosen for deletion; ``is_leaving`` tells whether one was.
    """

    def __init__(
        self,
        parts: ChunkStoreParts,
        *,
        extents: Extents,
        failures: DeviceFailures,
        lock: "threading.RLock",
        find: Callable[[Sequence[ChunkId]], list[ChunkRecord | None]],
        is_leaving: Callable[[ChunkId], bool],
        on_stored: Callable[[ChunkId, Extent], None],
    ) -> None:
        self._extents = extents
        self._failures = failures
        self._lock = lock
        self._find = find
        self._is_leaving = is_leaving
        self._on_stored = on_stored
        self._counters = parts.counters
        self._epoch = parts.device_set.epoch
        self._next_stamp = parts.next_stamp
        self._under_way: dict[ChunkId, Future[Reason]] = {}
        self._writer = Writer(engine=parts.engine, device_ids=parts.device_set.device_ids)
        self.committer = Committer(
            index=parts.index,
            devices=parts.device_set.devices,
            limits=parts.commit_limits,
            pending_writes=lambda: self._writer.pending_writes,
            on_device_error=failures.report,
        )

    @property
    def next_stamp(self) -> int:
        """Above every stamp in the index."""
        return self._next_stamp

    def pending(self, chunk: ChunkId) -> Future[Reason] | None:
        """The write of a chunk that is under way."""
        return self._under_way.get(chunk)

    def write(self, sealed: SealedChunk, extent: Extent) -> Future[Reason]:
        """Writes a sealed chunk to its extent and commits it.

        The future resolves to UNSPECIFIED when the chunk is durable and visible, else
        to the reason; it never raises. The frame must not change before. A key has one
        extent: while another write of the chunk is under way, or its deletion, this one is
        refused with DEADLINE, and when it is there already it is done.
        """
        outcome: Future[Reason] = Future()
        with self._lock:
            refusal = self._guard(sealed.chunk)
            if refusal is not None:
                self._extents.free(extent)
                outcome.set_result(refusal)
                return outcome
            self._under_way[sealed.chunk] = outcome
            stamp = self._next_stamp
            self._next_stamp += 1
        ticket = WriteTicket(sealed=sealed, extent=extent, epoch=self._epoch, stamp=stamp)

        def written(result: ChunkRecord | DeviceError) -> None:
            if isinstance(result, DeviceError):
                self._failures.write_failed(extent.device_index, result)
                self._end(sealed.chunk, extent, Reason.DEVICE_FAILED)
                return
            self._failures.write_succeeded(extent.device_index)
            self.committer.submit(
                Commit(
                    change=sealed.change(result),
                    done=lambda reason: self._end(sealed.chunk, extent, reason),
                    device_indices=frozenset({extent.device_index}),
                    byte_count=extent.byte_count,
                )
            )

        self._writer.write(ticket, written)
        return outcome

    def _guard(self, chunk: ChunkId) -> Reason | None:
        """Why a chunk need not or must not be written now.

        The look-up that decides: only under this lock nobody else begins to write the key. The
        one before it is an early answer (``Stager.are_stored``). Since then another put may
        have stored the chunk, and a deletion takes the key off a frame that is being filled.
        """
        if chunk in self._under_way or self._is_leaving(chunk):
            return Reason.DEADLINE
        try:
            return None if self._find([chunk]) == [None] else Reason.UNSPECIFIED
        except IndexFailure:
            LOGGER.exception("a chunk cannot be written")
            return Reason.INTERNAL

    def _end(self, chunk: ChunkId, extent: Extent, reason: Reason) -> None:
        """Settles a write: the chunk is visible, or its extent is free again."""
        if reason is Reason.UNSPECIFIED:
            self._counters.add("stored_chunks")
            self._counters.add("stored_bytes", extent.byte_count)
            self._on_stored(chunk, extent)
        else:
            self._extents.free(extent)
        with self._lock:
            outcome = self._under_way.pop(chunk)
        outcome.set_result(reason)
