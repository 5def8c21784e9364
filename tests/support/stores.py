"""Whole stores in this process, over devices in memory and an index on disk."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvstored.format.identity import ChunkId, namespace_id
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.format.superblock import DATA_OFFSET, Superblock
from kvstored.io.device import Device
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.monitored import MonitoredDevice
from kvstored.io.thread_engine import ThreadEngine
from kvstored.store.index.index import Index
from kvstored.store.read.placement import Placement
from kvstored.store.read.plan import Order, PlanLimits
from kvstored.store.read.read_stream import ReadStream
from kvstored.store.read.reader import ReaderLimits
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.slab_geometry import SlabGeometry
from kvstored.store.write.committer import CommitLimits
from kvstored.tiers.chunks.requests import NewChunk, PutRequest, PutTicket, ReadRequest
from kvstored.tiers.chunks.status import StoreStats
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy.retention import Retention
from kvstored.tiers.tiered_store import RecoveredStore, TieredStore, TierLimits
from kvstored_contract.board import Board, board_bytes
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.waiting import PATIENCE_S

MIB = 1024 * 1024
SLAB_BYTES = MIB
NAMESPACE = namespace_id("default")

LAYOUT = StateLayout(
    model="test", dtype="float32", layers=(LayerState(StateKind.KV, 512),) * 4, chunk_tokens=16
)
"""Slices of 8 KiB, chunks of 32 KiB and a header."""


def key(number: int) -> bytes:
    """A chunk key that is easy to tell in a message."""
    return number.to_bytes(32, "big")


def superblocks(device_count: int, capacity_bytes: int) -> tuple[Superblock, ...]:
    """Superblocks of a set of equal devices."""
    return tuple(
        Superblock(
            set_id=b"s" * 16,
            device_id=bytes([index + 1]) * 16,
            device_index=index,
            device_count=device_count,
            capacity_bytes=capacity_bytes,
            slab_bytes=SLAB_BYTES,
            epoch=1,
        )
        for index in range(device_count)
    )


@dataclass(slots=True, kw_only=True)
class StoreUnderTest:
    """A tiered store with an arena, and its devices from the inside."""

    store: TieredStore
    devices: tuple[MemoryDevice, ...]
    arena: memoryview

    def fill(self, chunk_count: int, *, seed: int = 0, layout: StateLayout = LAYOUT) -> bytes:
        """Random payload of ``chunk_count`` chunks at the start of the arena."""
        byte_count = chunk_count * layout.layer_count * layout.layer_stride
        payload = np.random.default_rng(seed).bytes(byte_count)
        self.arena[:byte_count] = payload
        return payload

    def placement(self, base: int = 0, layout: StateLayout = LAYOUT) -> Placement:
        """Layers of a chunk side by side, chunks one after the other."""
        stride = layout.layer_stride
        return Placement(base=base, layer_stride=stride, chunk_stride=stride * layout.layer_count)

    def put(
        self,
        numbers: list[int],
        *,
        layout: StateLayout = LAYOUT,
        token_count: int | None = None,
        timeout_s: float = PATIENCE_S,
        namespace_id: bytes = NAMESPACE,
    ) -> list[PutTicket]:
        """Puts chunks whose payload lies at the start of the arena."""
        tokens = layout.chunk_tokens if token_count is None else token_count
        return self.store.put_path.put(
            PutRequest(
                namespace_id=namespace_id,
                layout=layout,
                chunks=tuple(
                    NewChunk(key(number), b"", tokens, stripe)
                    for stripe, number in enumerate(numbers)
                ),
                source=self.arena,
                placement=self.placement(layout=layout),
                deadline=time.monotonic() + timeout_s,
            )
        )

    def stats(self) -> StoreStats:
        """The whole store at this moment."""
        return self.store.inspection.stats()

    def read(
        self,
        numbers: list[int],
        *,
        base: int,
        board: Board,
        order: Order = Order.TAIL_FIRST,
        placement: Placement | None = None,
        first_layer: int = 0,
        layer_count: int | None = None,
        layout: StateLayout = LAYOUT,
        window_bytes: int = 0,
        timeout_s: float = PATIENCE_S,
        takes_transfers: bool = False,
        namespace_id: bytes = NAMESPACE,
    ) -> ReadStream:
        """Starts a read."""
        return self.store.read_path.read(
            ReadRequest(
                namespace_id=namespace_id,
                layout=layout,
                keys=tuple(key(number) for number in numbers),
                order=order,
                first_layer=first_layer,
                layer_count=layout.layer_count if layer_count is None else layer_count,
                arena=self.arena,
                takes_transfers=takes_transfers,
                placement=placement or self.placement(base, layout),
                board=board,
                notify=lambda: None,
                window_bytes=window_bytes,
                deadline=time.monotonic() + timeout_s,
            )
        )


def new_board(chunk_count: int, layer_count: int = LAYOUT.layer_count) -> Board:
    """A cleared board in memory of its own."""
    memory = bytearray(board_bytes(chunk_count=chunk_count, layer_count=layer_count))
    return Board(memoryview(memory), chunk_count=chunk_count, layer_count=layer_count)


def _plain(device: Device) -> Device:
    return device


@contextmanager
def open_store(
    path: Path,
    *,
    device_count: int = 2,
    slabs_per_device: int = 4,
    dram_bytes: int = 2 * MIB,
    wrap: Callable[[Device], Device] = _plain,
    promote: bool = True,
    namespaces: tuple[NamespaceLimits, ...] = (),
    ttl_s: float | None = None,
    dram_retention: Retention = Retention.LOOK_AHEAD_DENSITY,
) -> Iterator[StoreUnderTest]:
    """A fresh store over devices in memory; ``wrap`` may put faults around each."""
    capacity = DATA_OFFSET + slabs_per_device * SLAB_BYTES + 4096
    blocks = superblocks(device_count, capacity)
    media = tuple(MemoryDevice(f"device{index}", capacity) for index in range(device_count))
    monitored = tuple(MonitoredDevice(wrap(device)) for device in media)
    index = Index.open(path / "index", map_bytes=64 * MIB)
    engine = ThreadEngine(monitored, depth=4)
    store = TieredStore(
        RecoveredStore(
            device_set=DeviceSet(
                set_id=b"s" * 16,
                epoch=1,
                slab_bytes=SLAB_BYTES,
                devices=monitored,
                superblocks=blocks,
            ),
            devices=monitored,
            index=index,
            allocator=Allocator(
                slab_bytes=SLAB_BYTES,
                slab_counts=[block.slab_count for block in blocks],
                data_offset=DATA_OFFSET,
                slab_header_bytes=SLAB_HEADER_BYTES,
            ),
            table=ChunkTable(
                SlabGeometry(
                    SLAB_BYTES,
                    tuple(block.slab_count for block in blocks),
                    DATA_OFFSET,
                    SLAB_HEADER_BYTES,
                )
            ),
            next_stamp=1,
        ),
        engine=engine,
        limits=TierLimits(
            dram_bytes=dram_bytes,
            dram_slab_bytes=MIB,
            commit=CommitLimits(interval_s=0.005, group_bytes=8 * MIB),
            reader=ReaderLimits(
                depth=4,
                copy_depth=1,
                window_bytes=MIB,
                plan=PlanLimits(run_bytes_min=16 * 1024, run_bytes_max=64 * 1024),
            ),
            namespaces=namespaces,
            ttl_s=ttl_s,
            dram_retention=dram_retention,
        ),
    )
    arena = memoryview(bytearray(8 * MIB + 4096))
    try:
        yield StoreUnderTest(store=store, devices=media, arena=_aligned(arena))
    finally:
        store.close()
        index.close()


def _aligned(memory: memoryview) -> memoryview:
    address = np.frombuffer(memory, np.uint8).ctypes.data
    start = -address % 4096
    return memory[start : start + 8 * MIB]


BASE = 4 * MIB
"""Where reads of these tests go in the arena; puts take from its start."""


def put_durable(opened: StoreUnderTest, numbers: list[int]) -> None:
    for ticket in opened.put(numbers):
        assert ticket.durable is not None
        assert ticket.durable.result() is Reason.UNSPECIFIED


def forget_dram(opened: StoreUnderTest, numbers: list[int]) -> None:
    """Leaves the chunks on the devices only."""
    for number in numbers:
        opened.store._dram.drop(ChunkId(NAMESPACE, key(number)))
