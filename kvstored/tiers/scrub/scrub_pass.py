"""One pass of the scrub: everything on the devices is read and verified once.

Superblock copies come first, then the headers of slabs that hold chunks, then the chunks.
A damaged chunk is read a second time, as after a read that met damage, and quarantined.
Damaged superblocks and slab headers cost nothing while the store runs: they are reported.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum

from kvstored.counters import Counters
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.identity import ChunkId
from kvstored.format.superblock import SUPERBLOCK_BYTES, Superblock
from kvstored.io.device import READS_MAX, DeviceError
from kvstored.store.check.check_report import ProblemKind
from kvstored.store.check.chunk_check import check_chunk
from kvstored.store.space.slab_scan import SlabPlace, read_slab_header
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.scrub.scrub_device import Pacer, ScrubDevice
from kvstored.tiers.scrub.scrub_pace import looks

LOGGER = logging.getLogger(__name__)

ERRORS_IN_A_ROW_MAX = 8
"""A pass leaves a device alone that could not be read so many times, one after the other."""


class _Verdict(Enum):
    SOUND = "sound"
    DAMAGED = "damaged"
    UNREAD = "unread"


class ScrubPass:
    """What is looked at in one pass, and what was found. For one thread; ``progress`` for any.

    Counters, of the daemon and of this pass (``found``): ``scrub_chunks`` that were verified
    whole and of these ``scrub_damaged_chunks``, ``scrub_unread_chunks`` that could not be
    read, ``scrub_lost_records``, ``scrub_damaged_slab_headers``, ``scrub_damaged_superblocks``.

    Chunks that are put meanwhile may or may not be looked at; those that are evicted or
    deleted are left out, and each is pinned while it is looked at.
    """

    def __init__(
        self,
        *,
        store: ChunkStore,
        room: NvmeRoom,
        counters: Counters,
        devices: Sequence[ScrubDevice],
        pacer: Pacer,
        scratch: memoryview,
    ) -> None:
        self._store = store
        self._room = room
        self._counters = counters
        self._devices = devices
        self._pacer = pacer
        self._scratch = scratch
        self._chunk_count = max(room.chunk_count, 1)
        self._seen_count = 0
        self.found: Counter[str] = Counter()

    @property
    def read_bytes(self) -> int:
        """Bytes that were read in this pass."""
        return sum(device.read_bytes for device in self._devices)

    @property
    def progress(self) -> float:
        """The part of the chunks that were looked at, 0 to 1."""
        return min(self._seen_count / self._chunk_count, 1.0)

    def run(self, first_look: int) -> None:
        """Looks at everything, at the chunks from a look on; raises ScrubStopped."""
        for device_index in range(len(self._devices)):
            self._check_superblocks(device_index)
        for place in self._slab_places():
            self._check_slab_header(place)
        for first, end in looks(self._room.row_end, first_look):
            for chunk in self._room.chunks_in_rows(first, end):
                self._seen_count += 1
                self._look_at(chunk)

    def _count(self, name: str, amount: int = 1) -> None:
        self.found[name] += amount
        self._counters.add(name, amount)

    def _is_given_up(self, device_index: int) -> bool:
        """Whether a device has failed, or fails too often to go on with it."""
        return (
            device_index in self._store.failures.devices
            or self._devices[device_index].errors_in_a_row >= ERRORS_IN_A_ROW_MAX
        )

    def _check_superblocks(self, device_index: int) -> None:
        device = self._devices[device_index]
        superblock = self._store.device_set.superblocks[device_index]
        for offset in superblock.copy_offsets:
            if self._is_given_up(device_index):
                return
            try:
                is_sound = any(
                    self._superblock_at(device, offset) == superblock for _ in range(READS_MAX)
                )
            except DeviceError:
                continue
            if not is_sound:
                self._count("scrub_damaged_superblocks")
                LOGGER.error(
                    "the superblock copy at byte %d of %s is damaged; the next start rewrites it",
                    offset,
                    device.facts.name,
                )

    def _superblock_at(self, device: ScrubDevice, offset: int) -> Superblock | None:
        """The superblock in a page; None where there is none. Raises DeviceError."""
        page = self._scratch[:SUPERBLOCK_BYTES]
        device.readv([page], offset)
        try:
            return Superblock.decode(bytes(page))
        except FormatError:
            return None

    def _slab_places(self) -> Iterator[SlabPlace]:
        for device_index, superblock in enumerate(self._store.device_set.superblocks):
            for slab_index in range(superblock.slab_count):
                yield SlabPlace(
                    device=self._devices[device_index],
                    device_index=device_index,
                    device_id=superblock.device_id,
                    slab_index=slab_index,
                    offset=superblock.slab_offset(slab_index),
                    byte_count=superblock.slab_bytes,
                )

    def _check_slab_header(self, place: SlabPlace) -> None:
        """Without its slab's header a rebuild of the index would not find a slab's chunks."""
        slab = place.device_index, place.slab_index
        wanted = self._room.class_bytes_in_slab(*slab)
        if not wanted or self._is_given_up(place.device_index):
            return
        try:
            is_sound = any(self._class_bytes_on(place) == wanted for _ in range(READS_MAX))
        except DeviceError:
            return
        # A slab may have been emptied and used for another class while it was looked at.
        if not is_sound and self._room.class_bytes_in_slab(*slab) == wanted:
            self._count("scrub_damaged_slab_headers")
            LOGGER.error(
                "the header of slab %d of %s is damaged; if the index is lost too, a rebuild "
                "will miss its chunks",
                place.slab_index,
                place.device.facts.name,
            )

    def _class_bytes_on(self, place: SlabPlace) -> int:
        """The size class that a slab's header tells; 0 for none. Raises DeviceError."""
        header = read_slab_header(place, self._scratch)
        return 0 if header is None else header.class_bytes

    def _look_at(self, chunk: ChunkId) -> None:
        self._store.pins.pin([chunk])
        try:
            record = self._record_of(chunk)
            if record is None:
                # Also what is not read takes its time: a failed device may have had millions.
                self._pacer.wait(0)
            else:
                self._check_chunk(chunk, record)
        finally:
            self._store.pins.unpin([chunk])

    def _record_of(self, chunk: ChunkId) -> ChunkRecord | None:
        """The record of a pinned chunk; None when it is gone, or is a miss for everybody.

        Twice, because a chunk that is deleted and put again goes through the index and the
        table one after the other.
        """
        for _ in range(2):
            (record,) = self._store.find([chunk])
            if record is not None or self._is_gone(chunk):
                return record
        self._count("scrub_lost_records")
        LOGGER.error("the index entry of chunk %s is damaged; it is a miss", chunk.key.hex())
        return None

    def _is_gone(self, chunk: ChunkId) -> bool:
        if self._store.is_being_deleted(chunk):
            return True
        return self._room.are_stored([chunk], without=self._store.failures.devices) == [False]

    def _check_chunk(self, chunk: ChunkId, record: ChunkRecord) -> None:
        verdict = self._verdict(chunk, record)
        if verdict is _Verdict.DAMAGED:
            verdict = self._verdict(chunk, record)
            if verdict is _Verdict.SOUND:
                self._count("unconfirmed_chunks")
        if verdict is _Verdict.UNREAD:
            self._count("scrub_unread_chunks")
            return
        self._count("scrub_chunks")
        # Deleted since, or found by a read: nothing is left to do.
        if verdict is _Verdict.DAMAGED and self._store.find([chunk]) == [record]:
            self._count("scrub_damaged_chunks")
            self._store.quarantine(chunk, record)

    def _verdict(self, chunk: ChunkId, record: ChunkRecord) -> _Verdict:
        """Reads a chunk and compares its header with the index and every slice with that."""
        device_index = record.extent.device_index
        if self._is_given_up(device_index):
            self._pacer.wait(0)
            return _Verdict.UNREAD
        device = self._devices[device_index]
        device_id = self._store.device_set.device_ids[device_index]
        problems = check_chunk(
            chunk,
            record,
            lambda: self._store.index.lengths([(chunk, record)])[0],
            device,
            device_id,
            self._scratch,
        ).problems
        if any(problem.kind is ProblemKind.DEVICE for problem in problems):
            return _Verdict.UNREAD
        device.errors_in_a_row = 0
        return _Verdict.DAMAGED if problems else _Verdict.SOUND
