"""How much of the devices is lost to the cutting into slabs and size classes.

Fragmentation is what an allocation meets that must evict: the share of all bytes in slabs
that hold no live chunk and yet cannot be given to its class. These are free extents in
slabs of other classes, and what a slab has behind its last extent and in its header. No
free extent of its own class and no empty slab is left at such a moment, so fragmentation
is 1 - live bytes / capacity.

The allocator, the room and its order are those of the daemon; only the commits behind
them take no time. Slabs are 1 % of a device: each class has one that is partly filled.
"""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from kvstored.config import StoreSection
from kvstored.counters import Counters
from kvstored.deadlines import NO_DEADLINE
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import (
    CLASS_STEPS,
    HEADER_BYTES,
    ChunkGeometry,
    Extent,
    class_bytes_for,
)
from kvstored.format.identity import ChunkId
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.nvme_victims import VICTIMS_PER_ROUND
from kvstored.tiers.policy.shares import TierShares
from kvstored.tiers.policy.table_lru import TableLru
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support import labs
from tests.support.stores import MIB, NAMESPACE, key

FRAGMENTATION_MAX = 0.05
SLAB_BYTES = 64 * MIB
SLABS_PER_DEVICE = 100
DEVICES = 2
CAPACITY_BYTES = SLAB_BYTES * SLABS_PER_DEVICE * DEVICES
CLASSES = (MIB + 4096, 5 * MIB // 2 + 4096, 3 * MIB + 4096)
SMALL, _, LARGE = CLASSES
ENCODED = StateLayout(
    model="m",
    dtype="f",
    layers=(LayerState(StateKind.KV, 32 * 1024),) * 2,
    chunk_tokens=64,
    codec="c",
)
ENCODED_CLASSES = sorted(
    {
        class_bytes_for(ENCODED, ChunkGeometry.of_slices((length, length)))
        for length in range(1, ENCODED.slice_bytes(0) + 1, 4096)
    }
)
ENCODED_FRAGMENTATION_MAX = 0.10
RECENT_CHUNKS = 20_000
"""More than the devices hold: some of those that are used again are gone."""


class InstantStore:
    """What the room needs of a chunk store, where a deletion is committed at once."""

    def __init__(self) -> None:
        self.extents = self.pins = self
        self.allocator = Allocator(
            slab_bytes=SLAB_BYTES,
            slab_counts=[SLABS_PER_DEVICE] * DEVICES,
            data_offset=MIB,
            slab_header_bytes=SLAB_HEADER_BYTES,
        )
        self.records: dict[ChunkId, ChunkRecord] = {}
        table = ChunkTable(self.allocator.geometry)
        self.room = NvmeRoom(
            table=table, shares=TierShares.undivided(TableLru(table)), counters=Counters()
        )
        self.fragmentation: list[float] = []
        self.failures = SimpleNamespace(devices=frozenset[int]())
        self.device_set = SimpleNamespace(devices=range(DEVICES))
        self._put_count = 0

    @property
    def used_bytes(self) -> int:
        return sum(self.allocator.used_bytes(device) for device in range(DEVICES))

    def live_bytes(self, class_bytes: int) -> int:
        sizes = [record.extent.byte_count for record in self.records.values()]
        return sizes.count(class_bytes) * class_bytes

    def allocate(self, class_bytes: int, device_index: int, *, deadline: float) -> Extent | Reason:
        assert deadline == NO_DEADLINE
        allocation = self.allocator.allocate(class_bytes, device_index)
        if allocation is None:
            self.fragmentation.append(1 - self.used_bytes / CAPACITY_BYTES)
            return Reason.STORE_FULL
        return allocation.extent

    @property
    def is_index_short(self) -> bool:
        return False

    def find(self, chunks: Sequence[ChunkId]) -> list[ChunkRecord | None]:
        return [self.records.get(chunk) for chunk in chunks]

    def is_pinned(self, chunk: ChunkId) -> bool:
        return False

    def is_being_deleted(self, chunk: ChunkId) -> bool:
        return False

    def evict(self, chunks: Sequence[ChunkId], *, is_whole: bool) -> list[Future[bool]]:
        assert is_whole or len(chunks) <= VICTIMS_PER_ROUND
        return [self.delete(chunk) for chunk in chunks]

    def delete(self, chunk: ChunkId) -> Future[bool]:
        record = self.records.pop(chunk, None)
        if record is not None:
            self.allocator.free(record.extent)
            self.room.removed(chunk)
        outcome: Future[bool] = Future()
        outcome.set_result(record is not None)
        return outcome

    def put(self, class_bytes: int) -> ChunkId:
        number = self._put_count
        self._put_count += 1
        extent = self.room.take_extent(
            cast("ChunkStore", self),
            class_bytes,
            number % DEVICES,
            namespace_id=NAMESPACE,
            deadline=NO_DEADLINE,
        )
        assert isinstance(extent, Extent)
        chunk = ChunkId(NAMESPACE, key(number))
        self.records[chunk] = ChunkRecord(
            extent=extent,
            layout_id=bytes(32),
            token_count=64,
            epoch=1,
            stamp=number,
            header_checksum=0,
        )
        self.room.stored(chunk, extent)
        self.room.give_back(NAMESPACE, class_bytes)
        return chunk

    def touch(self, chunk: ChunkId) -> None:
        self.room.used([chunk])


def random_traffic(
    store: InstantStore, seed: int, phase_count: int, classes: Sequence[int] = CLASSES
) -> None:
    """Phases of 2000 puts and uses; what is wanted changes, up to one class alone."""
    generator = random.Random(seed)
    recent: list[ChunkId] = []
    for _ in range(phase_count):
        weights = [generator.choice((0, 1, 3, 10)) for _ in classes]
        if not any(weights):
            weights = [1] * len(classes)
        # A third of the operations use a chunk of the last puts, if it is still there.
        for wanted in generator.choices((*classes, None), (*weights, sum(weights) / 2), k=2000):
            if wanted is not None:
                recent.append(store.put(wanted))
                del recent[:-RECENT_CHUNKS]
            elif recent:
                store.touch(generator.choice(recent))


@labs.TRAFFIC.first("seed", range(3), name=str)
def test_puts_and_evictions_of_three_classes(seed: int) -> None:
    store = InstantStore()
    random_traffic(store, seed, phase_count=12)
    assert len(store.fragmentation) > 500
    assert max(store.fragmentation) <= FRAGMENTATION_MAX


@labs.ENCODED_TRAFFIC.first("seed", range(3), name=str)
def test_puts_and_evictions_of_all_classes_of_an_encoded_layout(seed: int) -> None:
    """Chunks of any length are at most CLASS_STEPS classes, each with a slab that fills."""
    store = InstantStore()
    random_traffic(store, seed, phase_count=12, classes=ENCODED_CLASSES)
    assert len(ENCODED_CLASSES) == CLASS_STEPS
    assert len(store.fragmentation) > 500
    assert max(store.fragmentation) <= ENCODED_FRAGMENTATION_MAX


@pytest.mark.parametrize("payload_bytes", [8 * MIB, 16 * MIB, 32 * MIB])
def test_default_slabs_hold_the_chunks_of_large_models_without_much_rest(
    payload_bytes: int,
) -> None:
    slab_bytes = StoreSection.model_fields["slab_bytes"].default
    extent_bytes = HEADER_BYTES + payload_bytes
    extent_count = (slab_bytes - SLAB_HEADER_BYTES) // extent_bytes
    assert 1 - extent_count * extent_bytes / slab_bytes <= FRAGMENTATION_MAX


def test_slabs_that_deletions_left_nearly_empty_serve_another_class() -> None:
    """Few survivors in every slab must not keep the rest of the devices from others."""
    store = InstantStore()
    generator = random.Random(0)
    for chunk in [store.put(SMALL) for _ in range(CAPACITY_BYTES // SMALL)]:
        if generator.random() < 0.9:
            store.delete(chunk)
    for _ in range(CAPACITY_BYTES // LARGE):
        store.put(LARGE)
    assert store.fragmentation[-1] <= FRAGMENTATION_MAX
    assert store.live_bytes(LARGE) > 0.8 * CAPACITY_BYTES


def test_a_class_that_nobody_uses_any_more_gives_up_its_slabs() -> None:
    """After a change of the model, by the time that the devices were filled twice.

    Small chunks are worth more for their bytes than the large ones that come.
    """
    store = InstantStore()
    for _ in range(CAPACITY_BYTES // SMALL):
        store.put(SMALL)
    for _ in range(2 * CAPACITY_BYTES // LARGE):
        store.put(LARGE)
    assert store.live_bytes(LARGE) > 0.85 * CAPACITY_BYTES
