"""The tiers as one store: what the server calls."""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from kvstored.counters import Counters
from kvstored.format.geometry import class_bytes
from kvstored.format.identity import ChunkId
from kvstored.io.engine import IoEngine
from kvstored.io.monitored import MonitoredDevice
from kvstored.store.allocator import Allocator
from kvstored.store.chunk_store import ChunkStore, ChunkStoreParts
from kvstored.store.chunk_table import ChunkTable
from kvstored.store.committer import CommitLimits
from kvstored.store.device_set import DeviceSet
from kvstored.store.index import Index
from kvstored.store.read_stream import ReadStream
from kvstored.store.reader import Reader, ReaderLimits
from kvstored.tiers.damage import DamageControl
from kvstored.tiers.dram import DramTier
from kvstored.tiers.inspection import Inspection
from kvstored.tiers.nvme_room import NvmeRoom
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.promoter import Promoter
from kvstored.tiers.put_path import PutPath
from kvstored.tiers.read_path import ReadPath
from kvstored.tiers.requests import (
    AppendOutcome,
    AppendRequest,
    LayoutRefusedError,
    PutRequest,
    PutTicket,
    ReadRequest,
)
from kvstored.tiers.scrub import Scrub
from kvstored.tiers.scrub_pace import ScrubLimits
from kvstored.tiers.sequence_parts import SequenceParts
from kvstored.tiers.stager import Stager
from kvstored.tiers.status import ChunkDetail, ChunkStatus, ScrubStatus, StoreStats
from kvstored_contract.layout import StateLayout

KNOWN_LAYOUTS_MAX = 4096
"""Layouts that are known to be in the index; beyond them one may be stored again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLimits:
    """Sizes that are fixed when the daemon starts."""

    dram_bytes: int
    dram_slab_bytes: int
    commit: CommitLimits
    reader: ReaderLimits
    scrub: ScrubLimits | None = None
    """None turns it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredStore:
    """An opened and recovered device set with its index and the chunks that are on it."""

    device_set: DeviceSet
    devices: tuple[MonitoredDevice, ...]
    index: Index
    allocator: Allocator
    table: ChunkTable
    next_stamp: int


class TieredStore:
    """DRAM and NVMe behind one set of verbs. Thread-safe.

    ``put``, ``append``, ``end_session`` and the methods of ``sequences`` block, everything
    else answers at once.
    """

    def __init__(self, recovered: RecoveredStore, *, engine: IoEngine, limits: TierLimits) -> None:
        self._engine = engine
        self._counters = Counters()
        self._known_layouts: set[bytes] = set()
        # Encoded slices are never whole pages, and so go through this memory.
        self._slice_bytes_max = limits.reader.plan.run_bytes_max
        room = NvmeRoom(table=recovered.table, counters=self._counters)
        self._store = ChunkStore(
            ChunkStoreParts(
                device_set=recovered.device_set,
                index=recovered.index,
                allocator=recovered.allocator,
                engine=engine,
                commit_limits=limits.commit,
                next_stamp=recovered.next_stamp,
                counters=self._counters,
            ),
            on_stored=room.stored,
            on_removed=room.removed,
        )
        self._dram = DramTier(
            capacity_bytes=limits.dram_bytes,
            slab_bytes=limits.dram_slab_bytes,
            policy=LruPolicy(),
        )
        self._reader = Reader(
            engine=engine,
            device_count=len(recovered.devices),
            limits=limits.reader,
            on_device_error=self._store.device_failed,
        )
        self._promoter = Promoter(
            store=self._store, dram=self._dram, engine=engine, counters=self._counters
        )
        self._damage = DamageControl(store=self._store, engine=engine, counters=self._counters)
        stager = Stager(store=self._store, dram=self._dram, room=room)
        self._put_path = PutPath(dram=self._dram, stager=stager, counters=self._counters)
        self._read_path = ReadPath(
            store=self._store,
            dram=self._dram,
            room=room,
            reader=self._reader,
            bounce_bytes=limits.reader.plan.run_bytes_max,
            counters=self._counters,
            on_read=self._promoter.was_read,
            on_damage=self._damage.suspect,
        )
        self._scrub = limits.scrub and Scrub(
            store=self._store,
            room=room,
            engine=engine,
            counters=self._counters,
            limits=limits.scrub,
        )
        self._inspection = Inspection(
            store=self._store,
            dram=self._dram,
            devices=recovered.devices,
            counters=self._counters,
            scrub_status=self._scrub.status if self._scrub else ScrubStatus,
        )
        self._sequence_parts = SequenceParts(
            store=self._store,
            dram=self._dram,
            engine=engine,
            stager=stager,
            counters=self._counters,
        )
        self.sequences = self._sequence_parts.verbs

    @property
    def has_failed(self) -> bool:
        """Whether nobody knows what the last commit did: the index is not to be trusted."""
        return self._store.committer.has_failed

    @property
    def next_stamp(self) -> int:
        """Above every stamp in the index."""
        return self._store.next_stamp

    def register_layout(self, layout: StateLayout) -> None:
        """Checks that chunks of a layout fit; raises LayoutRefusedError."""
        layout_id = layout.layout_id
        if layout_id in self._known_layouts:
            return
        slice_bytes = layout.layer_stride
        if layout.is_encoded and slice_bytes > self._slice_bytes_max:
            raise LayoutRefusedError(
                f"a slice of this layout takes up to {slice_bytes} bytes but one of a codec may "
                f"have {self._slice_bytes_max}; use a smaller chunk_tokens or a larger "
                "read_bytes_max"
            )
        size = class_bytes(layout)
        limit = min(self._store.allocator.class_bytes_max, self._dram.class_bytes_max)
        if size > limit:
            raise LayoutRefusedError(
                f"a chunk of this layout takes {size} bytes but a slab holds {limit}; "
                "use a smaller chunk_tokens or a larger slab_bytes"
            )
        self._store.remember_layout(layout)
        if len(self._known_layouts) >= KNOWN_LAYOUTS_MAX:
            self._known_layouts.clear()
        self._known_layouts.add(layout_id)

    def put(self, request: PutRequest) -> list[PutTicket]:
        """Stores complete chunks; see ``PutPath.put``. Blocks."""
        return self._put_path.put(request)

    def append(self, request: AppendRequest) -> list[AppendOutcome]:
        """Adds rows to open sequences; see ``AppendPath.append``. Blocks."""
        return self._sequence_parts.append_path.append(request)

    def end_session(self, session_id: int) -> None:
        """Ends a session's ephemeral sequences and gives back its open frames. Blocks."""
        self._sequence_parts.opened.end_session(session_id)

    def match(self, namespace_id: bytes, keys: Sequence[bytes]) -> int:
        """Length of the longest prefix of ``keys`` that could be read now."""
        return self._read_path.match([ChunkId(namespace_id, key) for key in keys])

    def read(self, request: ReadRequest) -> ReadStream:
        """Plans and starts one read; raises PlacementError."""
        return self._read_path.read(request)

    def cancel(self, stream: ReadStream) -> None:
        """Gives up what a read has not in flight."""
        self._read_path.cancel(stream)

    def pin(self, namespace_id: bytes, keys: Sequence[bytes]) -> tuple[ChunkId, ...]:
        """Pins those of the chunks that are on the devices or on their way, and returns them."""
        chunks = [ChunkId(namespace_id, key) for key in keys]
        self._store.pin(chunks)
        # In this order: a write that ends in between is seen by the second look.
        are_coming = [self._store.is_being_written(chunk) for chunk in chunks]
        are_visible = self._read_path.are_visible(chunks)
        absent = [
            chunk
            for chunk, *found in zip(chunks, are_coming, are_visible, strict=True)
            if not any(found)
        ]
        self._store.unpin(absent)
        missing = set(absent)
        return tuple(chunk for chunk in chunks if chunk not in missing)

    def unpin(self, chunks: Iterable[ChunkId]) -> None:
        """Takes back one pin of each chunk."""
        self._store.unpin(chunks)

    def delete(self, namespace_id: bytes, keys: Sequence[bytes]) -> Future[int]:
        """Deletes chunks; they are unreadable at once.

        The future tells, when that is durable, how many there were.
        """
        total: Future[int] = Future()
        pending = []
        for key in keys:
            chunk = ChunkId(namespace_id, key)
            # In this order: a promotion that begins in between finds nothing to load.
            pending.append(self._store.delete(chunk))
            self._dram.drop(chunk)
        lock = threading.Lock()
        remaining = len(pending)

        def one_is_done(_: Future[bool]) -> None:
            nonlocal remaining
            with lock:
                remaining -= 1
                is_last = remaining == 0
            if is_last:
                total.set_result(sum(future.result() for future in pending))

        for future in pending:
            future.add_done_callback(one_is_done)
        if not pending:
            total.set_result(0)
        return total

    def stats(self) -> StoreStats:
        """The whole store at this moment."""
        return self._inspection.stats()

    def list_chunks(self, key_prefix: str, limit: int) -> tuple[list[ChunkStatus], bool]:
        """Up to ``limit`` chunks whose hexadecimal key begins so; and whether there are more."""
        return self._inspection.list_chunks(key_prefix, limit)

    def inspect(self, key_prefix: str) -> ChunkDetail | None:
        """The first chunk whose hexadecimal key begins so, with its header."""
        return self._inspection.inspect(key_prefix)

    def close(self) -> None:
        """Finishes every write and commit, then ends all threads.

        The index and the devices stay open; the caller closes them.
        """
        if self._scrub:
            self._scrub.close()
        self._promoter.close()
        self._damage.close()
        self._engine.close()
        self._sequence_parts.close()
        self._store.close()
        self._reader.close()
