"""An in-memory stand-in for ``kvstored_client.Client``: the verbs that the runner uses.

The *store* outlives clients, as a daemon's devices outlive its clients. Faults are
fields that a test sets; none of them ever makes the fake serve other bytes than those
that were stored.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvstored_client import (
    AppendItem,
    AppendReport,
    AppendResult,
    Match,
    NewChunk,
    Order,
    Placement,
    PutOutcome,
    PutReport,
    PutResult,
    Reason,
    Region,
    StateLayout,
)
from kvstored_client.free_space import FreeSpace
from kvstored_contract.board import SliceState
from kvstored_contract.keys import prefix_keys
from kvstored_contract.snapshot import SnapshotGeometry
from tests.engine_adapters.runner.fake_read import FakeRead
from tests.engine_adapters.runner.fake_sequences import FakeSequences

NAMESPACE = "test"


@dataclass
class FakeStore:
    """Chunks by key: the bytes of every layer."""

    chunks: dict[bytes, list[bytes]] = field(default_factory=dict)
    parents: dict[bytes, bytes] = field(default_factory=dict)
    tokens: dict[bytes, int] = field(default_factory=dict)


class FakeLease:
    def __init__(self, released: list[int], is_pinned: tuple[bool, ...] = ()) -> None:
        self._released = released
        self.is_pinned = is_pinned

    def release(self) -> None:
        self._released.append(1)


class FakeClient:
    """One session. ``regions_in_use`` and ``reads_in_flight`` must be 0 when all is over."""

    def __init__(
        self, store: FakeStore, *, arena_bytes: int = 64 << 20, present: bool = True
    ) -> None:
        self.store = store
        self.counters: dict[str, int] = {}
        self.present = present
        self.alive = True
        self.rejects: Callable[[int], bool] = lambda put_index: False
        self.before_read: Callable[[], None] = lambda: None
        self.after_read: Callable[[], None] = lambda: None
        self.missing_layers: set[tuple[bytes, int]] = set()
        self.never_finishes = False
        self.orders: list[Order] = []
        self.read_sizes: list[int] = []
        self.read_layers: list[tuple[int, int]] = []
        self.windows_bytes: list[int] = []
        self.now_s = 0.0
        self.wait_s = 0.0
        self.comes_in_pieces = False
        self.lost_as = SliceState.MISSING
        self.on_wait: Callable[[], None] = lambda: None
        self.sequences = FakeSequences(lambda: self.present and self.alive)
        self.append_count = 0
        self.rejected_appends: Callable[[int, str], bool] = lambda append_index, sequence: False
        self.loses_tail = False
        self.put_count = 0
        self.regions_in_use = 0
        self.reads_in_flight = 0
        self.leases_taken = 0
        self.connect_threads: list[str] = []
        self.connecting_allocations = 0
        self.leases_released: list[int] = []
        self.region_bytes_max = arena_bytes
        self._arena = memoryview(bytearray(arena_bytes))
        self._space = FreeSpace(arena_bytes)
        self._lock = threading.Lock()
        self._wait_lock = threading.Lock()

    def prefix_keys(self, layout: StateLayout, token_ids: Sequence[int]) -> list[bytes]:
        if not self.present:
            return []
        return prefix_keys(namespace=NAMESPACE, layout=layout, token_ids=token_ids)

    @property
    def epoch(self) -> int:
        return int(self.present and self.alive)

    def available(self) -> bool:
        self.connect_threads.append(threading.current_thread().name)
        return self.present

    def allocate(self, byte_count: int, *, connects: bool = True) -> Region | None:
        with self._lock:
            self.connecting_allocations += connects
            offset = self._space.allocate(byte_count) if self.present else None
            if offset is None:
                return None
            self.regions_in_use += 1
        view = self._arena[offset : offset + byte_count]
        return Region(
            view, arena=self, offset=offset, is_alive=lambda: self.alive, release=self._release
        )

    def put(
        self,
        layout: StateLayout,
        chunks: Sequence[NewChunk],
        source: Placement,
        *,
        ack: object,
        timeout_ms: int = 5000,
    ) -> PutReport:
        self.put_count += 1
        if not all(self.present and region.is_current for region in source.regions):
            return PutReport((PutResult(PutOutcome.REJECTED, Reason.INTERNAL),) * len(chunks))
        if self.rejects(self.put_count - 1):
            rejected = PutResult(PutOutcome.REJECTED, Reason.DRAM_FULL)
            return PutReport((rejected,) * len(chunks))
        return PutReport(
            tuple(self._put(layout, chunk, source, index) for index, chunk in enumerate(chunks))
        )

    def append(
        self,
        layout: StateLayout,
        snapshot: Region,
        row_count: int,
        items: Sequence[AppendItem],
    ) -> AppendReport:
        if not items:
            return AppendReport(())
        if not (self.present and self.alive and snapshot.is_current):
            unserved = AppendResult(0, Reason.INTERNAL)
            return AppendReport((unserved,) * len(items), is_served=False)
        self.append_count += 1
        geometry = SnapshotGeometry(layout, row_count)
        return AppendReport(tuple(self._append(item, snapshot, geometry) for item in items))

    def _append(
        self, item: AppendItem, snapshot: Region, geometry: SnapshotGeometry
    ) -> AppendResult:
        sequence = self.sequences.open.get(item.sequence)
        if sequence is None:
            return AppendResult(0, Reason.SEQUENCE_UNKNOWN)
        if sequence.length_tokens != item.first_token:
            return AppendResult(sequence.length_tokens, Reason.SEQUENCE_CONFLICT)
        if self.rejected_appends(self.append_count - 1, item.sequence):
            return AppendResult(sequence.length_tokens, Reason.DRAM_FULL)
        if self.loses_tail:
            sequence.drop_tail()
            return AppendResult(sequence.length_tokens, Reason.STORE_FULL)
        keys = list(item.keys)
        for row in range(item.first_row, item.first_row + item.token_count):
            sequence.add(snapshot.view, row, geometry)
            if sequence.tail_tokens == sequence.layout.chunk_tokens:
                key = keys.pop(0)
                self.store.chunks.setdefault(key, sequence.seal(key))
        assert not keys
        return AppendResult(sequence.length_tokens)

    def register(self, layout: StateLayout) -> bool | None:
        return True if self.present else None

    def match(
        self, layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int = 0
    ) -> Match[FakeLease]:
        count = next(
            (index for index, key in enumerate(keys) if key not in self.store.chunks), len(keys)
        )
        if not self.present or count == 0:
            return Match(0)
        assert lease_ms > 0
        self.leases_taken += 1
        return Match(count, FakeLease(self.leases_released))

    def pin(self, layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int) -> FakeLease | None:
        is_pinned = tuple(self.present and key in self.store.chunks for key in keys)
        if not any(is_pinned):
            return None
        assert lease_ms > 0
        self.leases_taken += 1
        return FakeLease(self.leases_released, is_pinned)

    def read(
        self,
        layout: StateLayout,
        keys: Sequence[bytes],
        destination: Placement,
        *,
        order: Order,
        first_layer: int,
        layer_count: int,
        window_bytes: int = 0,
        timeout_ms: int,
    ) -> FakeRead:
        assert timeout_ms > 0
        self.before_read()
        self.orders.append(order)
        self.read_sizes.append(len(keys))
        self.read_layers.append((first_layer, layer_count))
        self.windows_bytes.append(window_bytes)
        self.reads_in_flight += 1
        layers = range(first_layer, first_layer + layer_count)
        slices = [
            self._deliver(layout, layers, key, destination, index) for index, key in enumerate(keys)
        ]
        lengths = [self.lengths(key, layers) for key in keys]
        self.after_read()
        return FakeRead(
            slices,
            lengths=lengths,
            chunk_bytes=sum(layout.slice_bytes(layer) for layer in layers),
            hangs=self.never_finishes,
            is_slow=self.wait_s > 0,
            comes_in_pieces=self.comes_in_pieces,
            lost_as=self.lost_as,
            wait_lock=self._wait_lock,
            on_wait=self._waited,
            on_close=self._read_closed,
        )

    def _put(
        self, layout: StateLayout, chunk: NewChunk, source: Placement, index: int
    ) -> PutResult:
        if chunk.key in self.store.chunks:
            return PutResult(PutOutcome.EXISTED)
        self.store.chunks[chunk.key] = [
            bytes(self._slice(layout, source, index, layer, chunk.slice_bytes))
            for layer in range(layout.layer_count)
        ]
        self.store.parents[chunk.key] = chunk.parent_key
        self.store.tokens[chunk.key] = chunk.token_count
        return PutResult(PutOutcome.STORED)

    def _deliver(
        self, layout: StateLayout, layers: range, key: bytes, destination: Placement, index: int
    ) -> list[bool]:
        """Writes what is stored of the chunk; what is missing is filled with rubbish."""
        stored = self.store.chunks.get(key) if self.present and self.alive else None
        found = []
        for row, layer in enumerate(layers):
            offset = destination.base + row * destination.layer_stride
            offset += index * destination.chunk_stride
            target = self._arena[offset : offset + layout.slice_bytes(layer)]
            target[:] = b"\x7f" * len(target)
            is_there = stored is not None and (key, layer) not in self.missing_layers
            if stored and is_there:
                target[: len(stored[layer])] = stored[layer]
            found.append(is_there)
        return found

    def lengths(self, key: bytes, layers: range) -> list[int]:
        """Of the slices of a chunk; 0 of one that is not stored."""
        stored = self.store.chunks.get(key)
        return [len(stored[layer]) if stored else 0 for layer in layers]

    def _slice(
        self,
        layout: StateLayout,
        placement: Placement,
        chunk: int,
        layer: int,
        slice_bytes: Sequence[int],
    ) -> memoryview:
        assert bool(slice_bytes) == layout.is_encoded
        byte_count = slice_bytes[layer] if slice_bytes else layout.slice_bytes(layer)
        assert byte_count <= layout.slice_bytes(layer)
        offset = placement.base + layer * placement.layer_stride
        if placement.block_offsets:
            offset += placement.block_offsets[chunk]
        else:
            offset += chunk * placement.chunk_stride
        return self._arena[offset : offset + byte_count]

    def _release(self, offset: int) -> None:
        with self._lock:
            self._space.release(offset)
            self.regions_in_use -= 1

    def _waited(self) -> None:
        self.now_s += self.wait_s
        self.on_wait()

    def _read_closed(self) -> None:
        self.reads_in_flight -= 1
