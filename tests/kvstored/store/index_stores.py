"""Device sets in memory with chunks as the daemon writes them, for the tests of the index."""

from dataclasses import dataclass, field

import numpy as np

from kvstored.format.checksum import checksum
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader, SliceSum, page_checksum
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored.format.slab_header import SLAB_HEADER_BYTES, SlabHeader
from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES, Superblock
from kvstored.io.memory_device import MemoryDevice
from kvstored.store.index.index import IndexMeta
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.superblock_copies import write_superblock
from kvstored.store.start.recover import Recovered, allocator_of

NAMESPACE_ID = b"n" * 16
SET_ID = b"s" * 16
LAYOUT_ID = b"l" * 32
SLAB_BYTES = 256 * 1024
SLAB_COUNT = 4
SLICE_BYTES = (5000, 0, 4096)
CLASS_BYTES = ChunkGeometry.of_slices(SLICE_BYTES).extent_bytes
MAP_BYTES = 16 * 1024 * 1024


def chunk_id(number: int) -> ChunkId:
    """A chunk that is easy to tell in a message."""
    return ChunkId(NAMESPACE_ID, number.to_bytes(32, "big"))


def extent_at(position: int, *, slab: int = 0, device: int = 0, size: int = CLASS_BYTES) -> Extent:
    """The extent at one position of one slab."""
    offset = DATA_OFFSET + slab * SLAB_BYTES + SLAB_HEADER_BYTES + position * size
    return Extent(device, offset, size)


def record_at(extent: Extent, *, stamp: int = 1) -> ChunkRecord:
    """A record of a chunk that nobody has written."""
    return ChunkRecord(
        extent=extent,
        layout_id=LAYOUT_ID,
        token_count=16,
        epoch=1,
        stamp=stamp,
        header_checksum=stamp * 7,
    )


def meta(*, set_id: bytes = SET_ID, clean: bool = False) -> IndexMeta:
    """Meta data of an index of the devices here."""
    return IndexMeta(set_id=set_id, epoch=1, clean=clean)


def chunks_of(recovered: Recovered) -> list[tuple[ChunkId, Extent]]:
    """Chunks in service with their extents, in the order of their last use."""
    claims = [
        claim
        for slab in range(recovered.table.geometry.slab_count)
        for claim in recovered.table.claims_in_slab(slab)
    ]
    return [(chunk, extent) for chunk, extent, _ in sorted(claims, key=lambda claim: claim[2])]


def memory_device_set(device_count: int = 2) -> DeviceSet:
    """A formatted set of devices in memory in epoch 1."""
    capacity_bytes = DATA_OFFSET + SLAB_COUNT * SLAB_BYTES + SUPERBLOCK_BYTES
    devices = tuple(
        MemoryDevice(f"memory-{index}", capacity_bytes) for index in range(device_count)
    )
    superblocks = tuple(
        Superblock(
            set_id=SET_ID,
            device_id=bytes([index + 1]) * 16,
            device_index=index,
            device_count=device_count,
            capacity_bytes=capacity_bytes,
            slab_bytes=SLAB_BYTES,
            epoch=1,
        )
        for index in range(device_count)
    )
    for device, superblock in zip(devices, superblocks, strict=True):
        write_superblock(device, superblock)
    return DeviceSet(
        set_id=SET_ID, epoch=1, slab_bytes=SLAB_BYTES, devices=devices, superblocks=superblocks
    )


def media(device_set: DeviceSet, device_index: int) -> np.ndarray:
    """The bytes of one device, to look at and to damage."""
    device = device_set.devices[device_index]
    assert isinstance(device, MemoryDevice)
    return device.media


def write_slab_header(
    device_set: DeviceSet, *, device: int, slab: int, class_bytes: int = CLASS_BYTES, epoch: int = 1
) -> None:
    """Opens a slab for a size class."""
    page = SlabHeader(
        device_id=device_set.device_ids[device],
        slab_index=slab,
        class_bytes=class_bytes,
        epoch=epoch,
    ).encode()
    start = device_set.superblocks[device].slab_offset(slab)
    media(device_set, device)[start : start + len(page)] = np.frombuffer(page, np.uint8)


def write_chunk(
    device_set: DeviceSet,
    chunk: ChunkId,
    extent: Extent,
    *,
    stamp: int,
    epoch: int = 1,
    slice_bytes: tuple[int, ...] = SLICE_BYTES,
    is_encoded: bool = False,
) -> ChunkRecord:
    """Writes header and slices of a chunk with random payload and returns its record."""
    geometry = ChunkGeometry.of_slices(slice_bytes)
    rng = np.random.default_rng(stamp)
    payloads = [rng.bytes(byte_count) for byte_count in slice_bytes]
    page = ExtentHeader(
        device_id=device_set.device_ids[extent.device_index],
        offset=extent.offset,
        chunk=chunk,
        parent_key=b"",
        layout_id=LAYOUT_ID,
        class_bytes=extent.byte_count,
        epoch=epoch,
        stamp=stamp,
        token_count=16,
        slices=tuple(SliceSum(len(part), checksum(part) if part else 0) for part in payloads),
        is_encoded=is_encoded,
    ).encode()
    target = media(device_set, extent.device_index)
    target[extent.offset : extent.offset + HEADER_BYTES] = np.frombuffer(page, np.uint8)
    for offset, payload in zip(geometry.slice_offsets, payloads, strict=False):
        start = extent.offset + offset
        target[start : start + len(payload)] = np.frombuffer(payload, np.uint8)
    return ChunkRecord(
        extent=extent,
        layout_id=LAYOUT_ID,
        token_count=16,
        epoch=epoch,
        stamp=stamp,
        header_checksum=page_checksum(page),
    )


@dataclass(slots=True)
class WrittenStore:
    """A device set that chunks are written to through an allocator, as the daemon does."""

    device_set: DeviceSet = field(default_factory=memory_device_set)
    records: dict[ChunkId, ChunkRecord] = field(default_factory=dict)
    allocator: Allocator = field(init=False)

    def __post_init__(self) -> None:
        self.allocator = allocator_of(self.device_set)

    def write(self, number: int, *, is_encoded: bool = False) -> ChunkRecord:
        """Writes the chunk of this number with this stamp."""
        allocation = self.allocator.allocate(CLASS_BYTES, number % len(self.device_set.devices))
        assert allocation is not None
        extent = allocation.extent
        if allocation.opened_slab is not None:
            write_slab_header(
                self.device_set, device=extent.device_index, slab=allocation.opened_slab
            )
        record = write_chunk(
            self.device_set, chunk_id(number), extent, stamp=number, is_encoded=is_encoded
        )
        self.records[chunk_id(number)] = record
        return record
