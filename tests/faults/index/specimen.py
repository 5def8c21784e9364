"""A store whose index is to be damaged: devices in memory, an index on disk, known chunks."""

import functools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kvstored.format.sequence_record import SequenceRecord
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.monitored import MonitoredDevice
from kvstored.io.thread_engine import ThreadEngine
from kvstored.store.index.index import Index, IndexChange, IndexMeta
from kvstored.store.read.plan import PlanLimits
from kvstored.store.read.reader import ReaderLimits
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.start import index_open
from kvstored.store.start.recover import Recovered
from kvstored.store.write.committer import CommitLimits
from kvstored.tiers.chunks.requests import NewChunk, PutRequest
from kvstored.tiers.tiered_store import RecoveredStore, TieredStore, TierLimits
from kvstored_contract.board import Board, SliceState, board_bytes
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.stores import (
    MIB,
    NAMESPACE,
    SLAB_BYTES,
    StoreUnderTest,
    key,
    open_store,
    superblocks,
)
from tests.support.waiting import PATIENCE_S

LAYOUT = StateLayout(
    model="index", dtype="float32", layers=(LayerState(StateKind.KV, 256),), chunk_tokens=16
)
ENCODED = replace(LAYOUT, codec="lab")
CHUNK_BYTES = 4096
CHUNK_COUNT = 400
DELETED = range(CHUNK_COUNT - 40, CHUNK_COUNT)
"""Chunks that were deleted again: LMDB then has free pages to keep account of."""
STORED = range(CHUNK_COUNT - 40)
NEW = range(1000, 1012)
"""Chunks that are put after a start."""
MAP_BYTES = 64 * MIB
_GROUP = 20


@dataclass(frozen=True, slots=True)
class Specimen:
    """The devices, and the index of an unclean stop in ``folder``."""

    media: tuple[MemoryDevice, ...]
    folder: Path

    def device_set(self) -> DeviceSet:
        """The devices as a start opens them."""
        blocks = superblocks(len(self.media), self.media[0].facts.capacity_bytes)
        return DeviceSet(
            set_id=blocks[0].set_id,
            epoch=blocks[0].epoch,
            slab_bytes=SLAB_BYTES,
            devices=tuple(MonitoredDevice(device) for device in self.media),
            superblocks=blocks,
        )


def is_encoded(number: int) -> bool:
    """Every second chunk is of a layout with a codec."""
    return number % 2 == 1


@functools.cache
def payload_of(number: int) -> bytes:
    """What belongs to this number and to no other one; encoded chunks have many lengths."""
    byte_count = 1 + number * 37 % CHUNK_BYTES if is_encoded(number) else CHUNK_BYTES
    return np.random.default_rng(number).bytes(byte_count)


def make_specimen(folder: Path, chooser: random.Random) -> Specimen:
    """Chunks put in random order, one sequence; ends without a clean stop."""
    numbers = [*STORED, *DELETED]
    # The first use imports a part of numpy, which each forked start would do again.
    np.unique(numbers)
    chooser.shuffle(numbers)
    with open_store(folder, dram_bytes=MIB) as opened:
        index = opened.store._store.index
        set_id = superblocks(1, opened.devices[0].facts.capacity_bytes)[0].set_id
        sequence = SequenceRecord(layout_id=LAYOUT.layout_id, keys=tuple(map(key, STORED)))
        index.apply(
            IndexChange(
                meta=IndexMeta(set_id=set_id, epoch=1, clean=False),
                layouts=(LAYOUT, ENCODED),
                sequence_puts=((NAMESPACE, "conversation", sequence),),
            )
        )
        for start in range(0, len(numbers), _GROUP):
            put_durably(opened, numbers[start : start + _GROUP])
        for number in DELETED:
            assert opened.store.delete(NAMESPACE, [key(number)]).result() == 1
        return Specimen(opened.devices, folder / "index")


def put_durably(opened: StoreUnderTest, numbers: list[int]) -> None:
    """Stores chunks; fails unless all are acknowledged."""
    reasons = put(opened, numbers)
    assert set(reasons) == {Reason.UNSPECIFIED}, reasons


def put(opened: StoreUnderTest, numbers: list[int]) -> list[Reason]:
    """Stores chunks: UNSPECIFIED for those that were acknowledged, else why not."""
    return [
        reason for layout, part in by_layout(numbers) for reason in put_of(opened, part, layout)
    ]


def put_of(opened: StoreUnderTest, numbers: list[int], layout: StateLayout) -> list[Reason]:
    """Stores chunks of one layout."""
    for place, number in enumerate(numbers):
        payload = payload_of(number)
        opened.arena[place * CHUNK_BYTES : place * CHUNK_BYTES + len(payload)] = payload
    lengths = [(len(payload_of(number)),) if layout.is_encoded else () for number in numbers]
    tickets = opened.store.put_path.put(
        PutRequest(
            namespace_id=NAMESPACE,
            layout=layout,
            chunks=tuple(
                NewChunk(key(number), b"", layout.chunk_tokens, stripe, lengths[stripe])
                for stripe, number in enumerate(numbers)
            ),
            source=opened.arena,
            placement=opened.placement(layout=layout),
            deadline=time.monotonic() + PATIENCE_S,
        )
    )
    return [
        ticket.reason if ticket.durable is None else ticket.durable.result() for ticket in tickets
    ]


def readable(opened: StoreUnderTest, numbers: list[int]) -> tuple[set[int], set[int]]:
    """Those of the chunks that can be read, and those of them with wrong bytes."""
    found, wrong = set(), set()
    for layout, part in by_layout(numbers):
        size = board_bytes(chunk_count=len(part), layer_count=1, has_lengths=layout.is_encoded)
        board = Board(
            memoryview(bytearray(size)),
            chunk_count=len(part),
            layer_count=1,
            has_lengths=layout.is_encoded,
        )
        opened.arena[: len(part) * CHUNK_BYTES] = bytes(len(part) * CHUNK_BYTES)
        assert opened.read(part, base=0, board=board, layout=layout).wait()
        for place, number in enumerate(part):
            if board.states[place][0] == SliceState.RESIDENT:
                found.add(number)
                length = CHUNK_BYTES if board.lengths is None else int(board.lengths[place][0])
                start = place * CHUNK_BYTES
                if bytes(opened.arena[start : start + length]) != payload_of(number):
                    wrong.add(number)
    return found, wrong


def by_layout(numbers: list[int]) -> list[tuple[StateLayout, list[int]]]:
    """The chunks of each layout that any of them has."""
    parts = [
        (LAYOUT, [number for number in numbers if not is_encoded(number)]),
        (ENCODED, [number for number in numbers if is_encoded(number)]),
    ]
    return [(layout, part) for layout, part in parts if part]


@contextmanager
def started(
    specimen: Specimen, path: Path
) -> Iterator[tuple[StoreUnderTest, Index, Callable[[], Recovered]]]:
    """The store as the daemon starts it, with the index in ``path``.

    Raises what the start raises. The body may close the store itself.
    """
    device_set = specimen.device_set()
    begun = index_open.start(path, MAP_BYTES, device_set, lambda *_: None)
    index, recovered = begun.index, begun.recovered
    store = TieredStore(
        RecoveredStore(
            device_set=device_set,
            devices=device_set.devices,  # type: ignore[arg-type]
            index=index,
            allocator=recovered.allocator,
            table=recovered.table,
            next_stamp=recovered.next_stamp,
        ),
        engine=ThreadEngine(device_set.devices, depth=2),
        limits=TierLimits(
            dram_bytes=MIB,
            dram_slab_bytes=MIB,
            commit=CommitLimits(interval_s=0.0, group_bytes=MIB),
            reader=ReaderLimits(
                depth=2,
                copy_depth=1,
                window_bytes=MIB,
                plan=PlanLimits(run_bytes_min=CHUNK_BYTES, run_bytes_max=16 * CHUNK_BYTES),
            ),
        ),
    )
    arena = np.zeros(2 * MIB + CHUNK_BYTES, np.uint8).data.cast("B")
    start = -np.frombuffer(arena, np.uint8).ctypes.data % CHUNK_BYTES
    opened = StoreUnderTest(store=store, devices=specimen.media, arena=arena[start:])
    try:
        yield opened, index, lambda: recovered
    finally:
        store.close()
