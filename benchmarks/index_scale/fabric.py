"""Stores that were never put: devices, records and extents made by the store's own classes."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.workload import CHUNK_TOKENS, GIB, KIB, MIB
from kvstored.format.checksum import checksum
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader, SliceSum
from kvstored.format.geometry import HEADER_BYTES, Extent, class_bytes
from kvstored.format.identity import ChunkId, namespace_id
from kvstored.format.sequence_record import SequenceRecord
from kvstored.format.slab_header import SLAB_HEADER_BYTES, SlabHeader
from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES, Superblock
from kvstored.io.file_device import FileDevice
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.index.meta import IndexMeta
from kvstored.store.space.superblock_copies import write_superblock
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_contract.limits import KEY_BYTES

DEVICE_COUNT = 2
SLAB_BYTES = 64 * MIB
INDEX_MAP_BYTES = 8 * GIB
NAMESPACE_ID = namespace_id("default")
SLICE_BYTES = 4 * KIB
LAYOUT = StateLayout(
    model="benchmark",
    dtype="float16",
    layers=(LayerState(StateKind.KV, SLICE_BYTES // CHUNK_TOKENS),),
    chunk_tokens=CHUNK_TOKENS,
)
"""The smallest chunks that there are, so that many fit: 8 KiB with their header."""

LAYOUT_ID = LAYOUT.layout_id
CLASS_BYTES = class_bytes(LAYOUT)
EXTENTS_PER_SLAB = (SLAB_BYTES - SLAB_HEADER_BYTES) // CLASS_BYTES
_SET_ID = b"index-scale-set!"
_TRANSACTION_RECORDS = 100_000
_FIRST_SHARE = 0.7
SEQUENCE_CHUNKS = 100
_TRANSACTION_SEQUENCES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A store of ``chunk_count`` chunks in ``folder``, whose keys are random."""

    folder: Path
    chunk_count: int
    seed: int

    @property
    def index(self) -> Path:
        """The folder of the index."""
        return self.folder / "index"

    @property
    def sequence_count(self) -> int:
        """Sequences of ``SEQUENCE_CHUNKS`` chunks each, which have all chunks together."""
        return self.chunk_count // SEQUENCE_CHUNKS

    @property
    def slabs_per_device(self) -> int:
        """So many that all chunks have room."""
        return -(-self.chunk_count // (DEVICE_COUNT * EXTENTS_PER_SLAB))

    @property
    def device_bytes(self) -> int:
        """Size of each device, most of which may be holes."""
        return DATA_OFFSET + self.slabs_per_device * SLAB_BYTES + SUPERBLOCK_BYTES

    @property
    def devices(self) -> tuple[Path, ...]:
        """The device files."""
        return tuple(self.folder / f"device{number}" for number in range(DEVICE_COUNT))

    def superblock(self, device_index: int) -> Superblock:
        """The superblock of a device."""
        return Superblock(
            set_id=_SET_ID,
            device_id=bytes([device_index + 1]) * 16,
            device_index=device_index,
            device_count=DEVICE_COUNT,
            capacity_bytes=self.device_bytes,
            slab_bytes=SLAB_BYTES,
            epoch=1,
        )

    def keys(self) -> NDArray[np.uint8]:
        """The keys of all chunks, of shape [chunk_count, KEY_BYTES]; row i is that of chunk i."""
        return np.random.default_rng(self.seed).integers(
            0, 256, (self.chunk_count, KEY_BYTES), np.uint8
        )

    def extent(self, number: int) -> Extent:
        """Where a chunk lies: chunks go to the devices in turn, and there one behind the other."""
        slab, position = divmod(number // DEVICE_COUNT, EXTENTS_PER_SLAB)
        inside = SLAB_HEADER_BYTES + position * CLASS_BYTES
        return Extent(number % DEVICE_COUNT, DATA_OFFSET + slab * SLAB_BYTES + inside, CLASS_BYTES)

    def make_devices(self) -> None:
        """Formats devices that are holes but for their superblocks."""
        for device_index, path in enumerate(self.devices):
            with path.open("wb") as file:
                file.truncate(self.device_bytes)
            device = FileDevice.open(path)
            try:
                write_superblock(device, self.superblock(device_index))
            finally:
                device.close()

    def make_index(self, keys: NDArray[np.uint8]) -> None:
        """Stores a record for every chunk in the order of the keys, in two parts, and sequences.

        Sorted keys are several times as fast as the order in which a daemon gets them;
        the second part splits the pages of the first, so that these are as full as
        random order leaves them: about 70 %.
        """
        index = Index.open(self.index, map_bytes=INDEX_MAP_BYTES)
        try:
            first_count = int(self.chunk_count * _FIRST_SHARE)
            for first, count in ((0, first_count), (first_count, self.chunk_count - first_count)):
                for numbers in _in_key_order(keys, first, count):
                    puts = tuple(self._entry(keys, number) for number in numbers)
                    index.apply(IndexChange(puts=puts))
            for first in range(0, self.sequence_count, _TRANSACTION_SEQUENCES):
                last = min(first + _TRANSACTION_SEQUENCES, self.sequence_count)
                records = tuple(self._sequence(keys, number) for number in range(first, last))
                index.apply(IndexChange(sequence_puts=records))
            meta = IndexMeta(set_id=_SET_ID, epoch=1, clean=False)
            index.apply(IndexChange(layouts=(LAYOUT,), meta=meta))
        finally:
            index.close()

    def write_extents(self, keys: NDArray[np.uint8]) -> None:
        """Writes slab headers, extent headers and payload of all chunks, a slab at a time."""
        for device_index, path in enumerate(self.devices):
            device_id = self.superblock(device_index).device_id
            with path.open("r+b") as file:
                for slab_index in range(self.slabs_per_device):
                    file.seek(DATA_OFFSET + slab_index * SLAB_BYTES)
                    header = SlabHeader(
                        device_id=device_id,
                        slab_index=slab_index,
                        class_bytes=CLASS_BYTES,
                        epoch=1,
                    )
                    extents = self._extents(keys, device_index, device_id, slab_index)
                    file.write(header.encode() + b"".join(extents))
                file.flush()
                os.fsync(file.fileno())

    def _extents(
        self, keys: NDArray[np.uint8], device_index: int, device_id: bytes, slab_index: int
    ) -> Iterator[bytes]:
        first = slab_index * EXTENTS_PER_SLAB * DEVICE_COUNT + device_index
        end = min(first + EXTENTS_PER_SLAB * DEVICE_COUNT, self.chunk_count)
        payload = np.random.default_rng(first).bytes(SLICE_BYTES)
        slices = (SliceSum(SLICE_BYTES, checksum(payload)),)
        for number in range(first, end, DEVICE_COUNT):
            header = ExtentHeader(
                device_id=device_id,
                offset=self.extent(number).offset,
                chunk=ChunkId(NAMESPACE_ID, keys[number].tobytes()),
                parent_key=b"",
                layout_id=LAYOUT_ID,
                class_bytes=CLASS_BYTES,
                epoch=1,
                stamp=number + 1,
                token_count=CHUNK_TOKENS,
                slices=slices,
            )
            yield header.encode() + payload.ljust(CLASS_BYTES - HEADER_BYTES, b"\0")

    def _sequence(self, keys: NDArray[np.uint8], number: int) -> tuple[bytes, str, SequenceRecord]:
        first = number * SEQUENCE_CHUNKS
        own = tuple(key.tobytes() for key in keys[first : first + SEQUENCE_CHUNKS])
        name = f"{number:06}"
        return NAMESPACE_ID, name, SequenceRecord(layout_id=LAYOUT_ID, keys=own)

    def _entry(self, keys: NDArray[np.uint8], number: int) -> tuple[ChunkId, ChunkRecord]:
        record = ChunkRecord(
            extent=self.extent(number),
            layout_id=LAYOUT_ID,
            token_count=CHUNK_TOKENS,
            epoch=1,
            stamp=number + 1,
            header_checksum=number,
        )
        return ChunkId(NAMESPACE_ID, keys[number].tobytes()), record


def _in_key_order(keys: NDArray[np.uint8], first: int, count: int) -> Iterator[list[int]]:
    """Numbers from ``first`` on in the order of their keys, as many as go into a transaction."""
    part = keys[first : first + count]
    # Random keys differ in their first bytes.
    order = (
        np.argsort(np.ascontiguousarray(part[:, :8]).view(">u8")[:, 0].astype(np.uint64)) + first
    )
    for start in range(0, count, _TRANSACTION_RECORDS):
        yield order[start : start + _TRANSACTION_RECORDS].tolist()
