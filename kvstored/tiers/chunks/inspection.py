"""Answers to operators: statistics, lists of chunks, one chunk in detail."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

from kvstored.counters import Counters
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.memory import AlignedMemory
from kvstored.io.monitored import MonitoredDevice
from kvstored.store.index.entry import Table
from kvstored.store.index.index import IndexFailure
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.status import (
    ChunkDetail,
    ChunkStatus,
    DeviceStatus,
    NamespaceStatus,
    ScrubStatus,
    StoreStats,
)


class Inspection:
    """Reads what the parts of the store know. Thread-safe."""

    def __init__(
        self,
        *,
        store: ChunkStore,
        dram: DramTier,
        devices: tuple[MonitoredDevice, ...],
        counters: Counters,
        scrub_status: Callable[[], ScrubStatus],
        waiting_count: Callable[[], int],
        namespaces: Callable[[], tuple[NamespaceStatus, ...]],
    ) -> None:
        self._store = store
        self._dram = dram
        self._devices = devices
        self._counters = counters
        self._scrub_status = scrub_status
        self._waiting_count = waiting_count
        self._namespaces = namespaces

    def stats(self) -> StoreStats:
        """The whole store at this moment."""
        return StoreStats(
            epoch=self._store.device_set.epoch,
            chunk_count=self._entry_count(Table.CHUNKS),
            sequence_count=self._entry_count(Table.SEQUENCES),
            dram_capacity_bytes=self._dram.space.capacity_bytes,
            dram_used_bytes=self._dram.space.used_bytes,
            dram_chunk_count=self._dram.chunk_count,
            pinned_chunk_count=self._store.pins.count,
            index_failed=self._store.index.is_failed or self._store.committer.has_failed,
            counters=self._counters.values(),
            devices=tuple(self._device_status(index) for index in range(len(self._devices))),
            scrub=self._scrub_status(),
            waiting_request_count=self._waiting_count(),
            namespaces=self._namespaces(),
        )

    def _entry_count(self, table: Table) -> int:
        """0 while the index cannot be read: the other figures are wanted most then."""
        with suppress(IndexFailure):
            return self._store.index.usage.entry_count(table)
        return 0

    def list_chunks(self, key_prefix: str, limit: int) -> tuple[list[ChunkStatus], bool]:
        """Up to ``limit`` chunks whose hexadecimal key begins so; and whether there are more."""
        found = list(islice(self._matching(key_prefix), limit + 1))
        return found[:limit], len(found) > limit

    def inspect(self, key_prefix: str) -> ChunkDetail | None:
        """The first chunk whose hexadecimal key begins so, with its header."""
        status = next(self._matching(key_prefix), None)
        if status is None:
            return None
        header = self._header(status)
        return ChunkDetail(
            status=status,
            parent_key=header.parent_key if header else b"",
            slices=header.slices if header else (),
            layout=self._store.index.layout(status.layout_id),
        )

    def _matching(self, key_prefix: str) -> Iterator[ChunkStatus]:
        wanted, walks = key_prefix.lower(), self._store.index.walks
        for chunk, record in walks.records_by_prefix(wanted):
            yield self._chunk_status(chunk, record, quarantined=False)
        for chunk, record in walks.quarantined():
            if chunk.key.hex().startswith(wanted):
                yield self._chunk_status(chunk, record, quarantined=True)

    def _chunk_status(
        self, chunk: ChunkId, record: ChunkRecord, *, quarantined: bool
    ) -> ChunkStatus:
        return ChunkStatus(
            chunk=chunk,
            layout_id=record.layout_id,
            token_count=record.token_count,
            device_index=record.extent.device_index,
            offset=record.extent.offset,
            extent_bytes=record.extent.byte_count,
            epoch=record.epoch,
            quarantined=quarantined,
            in_dram=not quarantined and self._dram.contains(chunk),
        )

    def _header(self, status: ChunkStatus) -> ExtentHeader | None:
        memory = AlignedMemory(HEADER_BYTES)
        try:
            self._devices[status.device_index].readv([memory.view], status.offset)
            return ExtentHeader.decode(bytes(memory.view))
        except (DeviceError, FormatError):
            return None
        finally:
            memory.close()

    def _device_status(self, device_index: int) -> DeviceStatus:
        device = self._devices[device_index]
        counters = device.counters()
        return DeviceStatus(
            path=device.facts.name,
            capacity_bytes=self._store.extents.allocator.capacity_bytes(device_index),
            used_bytes=self._store.extents.used_bytes(device_index),
            read_bytes=counters.read_bytes,
            written_bytes=counters.written_bytes,
            read_requests=counters.read_requests,
            write_requests=counters.write_requests,
            flush_requests=counters.flush_requests,
            failed=device_index in self._store.failures.devices,
        )
