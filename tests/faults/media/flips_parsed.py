"""Flips in single structures, against the code that reads them: some ten thousand a second."""

import io
import random

from kvstored.format.chunk_records import decode_many
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.io.memory import AlignedMemory
from kvstored.store.index.entry import VERIFY, Table
from kvstored.store.index.snapshot import read_snapshot
from kvstored.store.space.slab_scan import read_slab_header, slab_places
from kvstored.store.space.superblock_copies import read_superblock
from kvstored.tiers.chunks.extent_load import is_intact
from tests.faults.media.flips_target import Specimen, Target, Verdict, Violation, flipped
from tests.faults.media.lab import device_set_of

PAGE_BITS = 8 * 4096


class _Extents:
    """The extents of all chunks in memory of their own."""

    def __init__(self, specimen: Specimen) -> None:
        self.sources = specimen.sources
        self.extents = []
        for source in self.sources:
            extent = source.record.extent
            media = specimen.lab.devices[extent.device_index].media
            self.extents.append(bytearray(media[extent.offset :][: source.geometry.extent_bytes]))
            if not is_intact(source, memoryview(self.extents[-1])):
                raise Violation("a sound chunk is refused")

    def accepts(self, number: int, bit: int) -> bool:
        """Whether a chunk passes for intact with one of its bits wrong."""
        extent = self.extents[number]
        extent[bit // 8] ^= 1 << bit % 8
        try:
            return is_intact(self.sources[number], memoryview(extent))
        finally:
            extent[bit // 8] ^= 1 << bit % 8


class ExtentPayloadTarget(Target):
    """Slices and the padding between them, against the checksums in the header."""

    name = "payload"

    def __init__(self, specimen: Specimen) -> None:
        self._extents = _Extents(specimen)

    def flip(self, dice: random.Random) -> list[Verdict]:
        number = dice.randrange(len(self._extents.sources))
        geometry = self._extents.sources[number].geometry
        bit = dice.randrange(8 * HEADER_BYTES, 8 * geometry.extent_bytes)
        is_served = any(
            start <= bit // 8 < start + size
            for start, size in zip(geometry.slice_offsets, geometry.slice_bytes, strict=False)
        )
        if self._extents.accepts(number, bit) is is_served:
            raise Violation(f"bit {bit} of the extent of chunk {number}")
        return [Verdict.DETECTED if is_served else Verdict.HARMLESS]


class ExtentHeaderTarget(Target):
    """The header page, against the index, and by itself as a rebuild reads it."""

    name = "extent header"

    def __init__(self, specimen: Specimen) -> None:
        self._extents = _Extents(specimen)

    def flip(self, dice: random.Random) -> list[Verdict]:
        number, bit = dice.randrange(len(self._extents.sources)), dice.randrange(PAGE_BITS)
        if self._extents.accepts(number, bit):
            raise Violation(f"bit {bit} of the header of chunk {number}")
        page = flipped(bytes(self._extents.extents[number][:HEADER_BYTES]), bit)
        refuse(lambda: ExtentHeader.decode(page), f"bit {bit} of the header of chunk {number}")
        return [Verdict.DETECTED]


class SlabHeaderTarget(Target):
    """Slab headers, as a rebuild and the offline check read them."""

    name = "slab header"

    def __init__(self, specimen: Specimen) -> None:
        self._page = AlignedMemory(SLAB_HEADER_BYTES)
        self._media = [device.media for device in specimen.lab.devices]
        places = slab_places(device_set_of(specimen.lab.devices))
        self._places = [p for p in places if read_slab_header(p, self._page.view) is not None]
        assert self._places

    def flip(self, dice: random.Random) -> list[Verdict]:
        place, bit = dice.choice(self._places), dice.randrange(PAGE_BITS)
        media, position = self._media[place.device_index], place.offset + bit // 8
        media[position] ^= 1 << bit % 8
        try:
            if read_slab_header(place, self._page.view) is not None:
                raise Violation(f"bit {bit} of the header of slab {place.slab_index}")
        finally:
            media[position] ^= 1 << bit % 8
        return [Verdict.DETECTED]


class SuperblockTarget(Target):
    """One copy of a superblock: the other is used. Both: the device is refused."""

    name = "superblock"

    def __init__(self, specimen: Specimen) -> None:
        self._devices = specimen.lab.devices
        self._superblocks = [read_superblock(device) for device in self._devices]

    def flip(self, dice: random.Random) -> list[Verdict]:
        index, bit = dice.randrange(len(self._devices)), dice.randrange(PAGE_BITS)
        device, expected = self._devices[index], self._superblocks[index]
        chosen = dice.choice([(0,), (1,), (0, 1)])
        positions = [expected.copy_offsets[copy] + bit // 8 for copy in chosen]
        for position in positions:
            device.media[position] ^= 1 << bit % 8
        try:
            if len(chosen) == 1:
                if read_superblock(device) != expected:
                    raise Violation(f"bit {bit} of copy {chosen[0]} of device {index}")
            else:
                refuse(lambda: read_superblock(device), f"bit {bit} of both copies of {index}")
        finally:
            for position in positions:
                device.media[position] ^= 1 << bit % 8
        return [Verdict.DETECTED]


class IndexRecordTarget(Target):
    """Keys and values of every table, against what verifies an entry."""

    name = "index record"

    def __init__(self, specimen: Specimen) -> None:
        self._entries = specimen.entries

    def flip(self, dice: random.Random) -> list[Verdict]:
        entry = dice.choice(self._entries)
        key, value = entry.key, entry.value
        # The one key of the meta table is a constant: another one is never looked up.
        key_bits = 0 if entry.table is Table.META else 8 * len(key)
        bit = dice.randrange(key_bits + 8 * len(value))
        if bit < key_bits:
            key = flipped(key, bit)
        else:
            value = flipped(value, bit - key_bits)
        where = f"bit {bit} of the entry {entry.key.hex()} of {entry.table.name}"
        refuse(lambda: VERIFY[entry.table](key, value), where)
        if entry.table is Table.CHUNKS:
            many = decode_many([entry.key, key], [entry.value, value])
            if many.damaged_keys != [key] or len(many.identities) != 1:
                raise Violation(f"{where}, parsed with others")
        return [Verdict.DETECTED]


class SnapshotTarget(Target):
    """The snapshot of a clean stop: not used as soon as any bit of it is wrong."""

    name = "snapshot"

    def __init__(self, specimen: Specimen) -> None:
        self._snapshot = specimen.snapshot
        list(read_snapshot(io.BytesIO(self._snapshot))[1])

    def flip(self, dice: random.Random) -> list[Verdict]:
        bit = dice.randrange(8 * len(self._snapshot))
        file = io.BytesIO(flipped(self._snapshot, bit))
        refuse(lambda: list(read_snapshot(file)[1]), f"bit {bit} of the snapshot")
        return [Verdict.DETECTED]


def refuse(parse: object, where: str) -> None:
    """``parse`` must raise FormatError; all else that it raises is a violation too."""
    try:
        parse()  # type: ignore[operator]
    except FormatError:
        return
    raise Violation(where)
