"""An in-memory stand-in for ``kvstored_client.Client``: the verbs that the runner uses.

The *store* outlives clients, as a daemon's devices outlive its clients. Faults are
fields that a test sets; none of them ever makes the fake serve other bytes than those
that were stored.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvstored_client import (
    Match,
    NewChunk,
    Order,
    Placement,
    PutOutcome,
    PutReport,
    PutResult,
    ReadReport,
    Reason,
    Region,
    StateLayout,
)
from kvstored_client.free_space import FreeSpace
from kvstored_contract.keys import prefix_keys

NAMESPACE = "test"


@dataclass
class FakeStore:
    """Chunks by key: the bytes of every layer."""

    chunks: dict[bytes, list[bytes]] = field(default_factory=dict)
    parents: dict[bytes, bytes] = field(default_factory=dict)
    tokens: dict[bytes, int] = field(default_factory=dict)


class FakeLease:
    def __init__(self, released: list[int]) -> None:
        self._released = released

    def release(self) -> None:
        self._released.append(1)


class FakeRead:
    """A read that was settled when it was asked for, or hangs until it is closed."""

    def __init__(self, report: ReadReport, on_close: Callable[[], None]) -> None:
        self._report = report
        self._on_close = on_close

    def wait(self, timeout_s: float | None = None) -> ReadReport:
        assert timeout_s is not None, "a wait for the store must have an end"
        assert timeout_s >= 0
        return self._report

    def close(self) -> None:
        self._on_close()


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
        self.put_count = 0
        self.regions_in_use = 0
        self.reads_in_flight = 0
        self.leases_taken = 0
        self.leases_released: list[int] = []
        self._arena = memoryview(bytearray(arena_bytes))
        self._space = FreeSpace(arena_bytes)
        self._lock = threading.Lock()

    def prefix_keys(self, layout: StateLayout, token_ids: Sequence[int]) -> list[bytes]:
        if not self.present:
            return []
        return prefix_keys(namespace=NAMESPACE, layout=layout, token_ids=token_ids)

    def allocate(self, byte_count: int) -> Region | None:
        with self._lock:
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
        timeout_ms: int,
    ) -> PutReport:
        self.put_count += 1
        if self.rejects(self.put_count - 1):
            rejected = PutResult(PutOutcome.REJECTED, Reason.DRAM_FULL)
            return PutReport((rejected,) * len(chunks))
        return PutReport(
            tuple(self._put(layout, chunk, source, index) for index, chunk in enumerate(chunks))
        )

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

    def read(
        self,
        layout: StateLayout,
        keys: Sequence[bytes],
        destination: Placement,
        *,
        order: Order,
        timeout_ms: int,
    ) -> FakeRead:
        assert timeout_ms > 0
        self.before_read()
        self.orders.append(order)
        self.read_sizes.append(len(keys))
        self.reads_in_flight += 1
        resident = tuple(
            self._deliver(layout, key, destination, index) for index, key in enumerate(keys)
        )
        prefix = next((index for index, whole in enumerate(resident) if not whole), len(keys))
        report = ReadReport(
            resident=resident,
            resident_prefix=prefix,
            device_bytes=sum(resident) * layout.chunk_bytes(),
            dram_bytes=0,
            finished=not self.never_finishes,
        )
        self.after_read()
        return FakeRead(report, self._read_closed)

    def _put(
        self, layout: StateLayout, chunk: NewChunk, source: Placement, index: int
    ) -> PutResult:
        if chunk.key in self.store.chunks:
            return PutResult(PutOutcome.EXISTED)
        self.store.chunks[chunk.key] = [
            bytes(self._slice(layout, source, index, layer)) for layer in range(layout.layer_count)
        ]
        self.store.parents[chunk.key] = chunk.parent_key
        self.store.tokens[chunk.key] = chunk.token_count
        return PutResult(PutOutcome.STORED)

    def _deliver(self, layout: StateLayout, key: bytes, destination: Placement, index: int) -> bool:
        """Writes what is stored of the chunk; what is missing is filled with rubbish."""
        stored = self.store.chunks.get(key) if self.present and self.alive else None
        whole = stored is not None
        for layer in range(layout.layer_count):
            target = self._slice(layout, destination, index, layer)
            if stored is None or (key, layer) in self.missing_layers:
                target[:] = b"\x7f" * len(target)
                whole = False
            else:
                target[:] = stored[layer]
        return whole

    def _slice(
        self, layout: StateLayout, placement: Placement, chunk: int, layer: int
    ) -> memoryview:
        offset = placement.base + layer * placement.layer_stride
        if placement.block_offsets:
            offset += placement.block_offsets[chunk]
        else:
            offset += chunk * placement.chunk_stride
        return self._arena[offset : offset + layout.slice_bytes(layer)]

    def _release(self, offset: int) -> None:
        with self._lock:
            self._space.release(offset)
            self.regions_in_use -= 1

    def _read_closed(self) -> None:
        self.reads_in_flight -= 1
