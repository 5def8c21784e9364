"""Finding the extents of a slab without the index, by the headers on the device."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader, page_checksum
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry, Extent
from kvstored.format.slab_header import SLAB_HEADER_BYTES, SlabHeader
from kvstored.format.slice_lengths import SliceLengths
from kvstored.io.device import READS_MAX, Device, DeviceError
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.scanned_slab import ScannedSlab
from kvstored.store.space.second_looks import SecondLooks
from kvstored_contract.limits import ALIGNMENT_BYTES

LOGGER = logging.getLogger(__name__)

SCAN_BYTES = 1024 * 1024
"""Memory that a scan needs, and its longest read."""
DENSE_CLASS_BYTES = 64 * 1024
"""Up to this size class one long read of everything is cheaper than one read a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabPlace:
    """One slab of one device: what its headers have to say of themselves."""

    device: Device
    device_index: int
    device_id: bytes
    slab_index: int
    offset: int
    byte_count: int


class _FirstPage(NamedTuple):
    """The first page of an extent: None where it cannot be read.

    ``header`` is the one in it if that is sound and in its own place, of whatever use of the slab.
    """

    page: bytes | None
    header: ExtentHeader | None


def slab_places(device_set: DeviceSet) -> list[SlabPlace]:
    """Every slab of the set, those of the same number on all devices together."""
    places = [
        SlabPlace(
            device=device,
            device_index=device_index,
            device_id=superblock.device_id,
            slab_index=slab_index,
            offset=superblock.slab_offset(slab_index),
            byte_count=superblock.slab_bytes,
        )
        for device_index, (device, superblock) in enumerate(
            zip(device_set.devices, device_set.superblocks, strict=True)
        )
        for slab_index in range(superblock.slab_count)
    ]
    return sorted(places, key=lambda place: (place.slab_index, place.device_index))


def read_slab_header(place: SlabPlace, scratch: memoryview) -> SlabHeader | None:
    """The header of a slab; None when the slab was never used or the header is not its own.

    Raises DeviceError. ``scratch`` is aligned memory of at least one page.
    """
    page = scratch[:SLAB_HEADER_BYTES]
    place.device.readv([page], place.offset)
    try:
        header = SlabHeader.decode(bytes(page))
    except FormatError:
        return None
    is_own = (header.device_id, header.slab_index) == (place.device_id, place.slab_index)
    is_possible = (
        HEADER_BYTES < header.class_bytes <= place.byte_count - SLAB_HEADER_BYTES
        and header.class_bytes % ALIGNMENT_BYTES == 0
    )
    return header if is_own and is_possible else None


def scan_slab(place: SlabPlace, scratch: memoryview, looks: SecondLooks) -> ScannedSlab:
    """Records of every chunk whose header in this slab is sound and at its own place.

    The payload is not looked at: it is verified when it is read. What a read error hits
    is read a second time, header by header, and as far as ``looks`` of the device allow, so is
    what has no sound header. Raises DeviceError where the slab's own header cannot be read.
    ``scratch`` is aligned memory of ``SCAN_BYTES``.
    """
    slab_header = _confirmed_slab_header(place, scratch)
    if slab_header is None:
        return ScannedSlab()
    found, lengths, unread_count = [], [], 0
    for page, header in _first_pages(place, slab_header.class_bytes, scratch, looks):
        if page is None:
            unread_count += 1
            continue
        if header is None or not _is_in_use(slab_header, header):
            continue
        found.append((header.chunk, _record(place, header, page)))
        if header.is_encoded:
            known = SliceLengths(lengths=header.slice_bytes, header_checksum=page_checksum(page))
            lengths.append((header.chunk, known))
    return ScannedSlab(chunks=tuple(found), lengths=tuple(lengths), unread_count=unread_count)


def _confirmed_slab_header(place: SlabPlace, scratch: memoryview) -> SlabHeader | None:
    """As ``read_slab_header``; None only where READS_MAX reads find none.

    A transfer may go wrong once, and without its header a slab would lose all of its chunks.
    """
    for reads_before in range(READS_MAX):
        header = _reread_slab_header(place, scratch)
        if header is not None:
            if reads_before:
                LOGGER.warning(
                    "the header of slab %d of %s was read wrong once",
                    place.slab_index,
                    place.device.facts.name,
                )
            return header
    return None


def _reread_slab_header(place: SlabPlace, scratch: memoryview) -> SlabHeader | None:
    """As ``read_slab_header``, with a second read where the first one fails."""
    try:
        return read_slab_header(place, scratch)
    except DeviceError:
        return read_slab_header(place, scratch)


def header_reads(*, offset: int, byte_count: int, class_bytes: int) -> Iterator[tuple[int, int]]:
    """(device offset of the first header, extent count) of each read that scans a slab."""
    extent_count = (byte_count - SLAB_HEADER_BYTES) // class_bytes
    dense = class_bytes <= DENSE_CLASS_BYTES
    step = (SCAN_BYTES - HEADER_BYTES) // class_bytes + 1 if dense else 1
    for first in range(0, extent_count, step):
        start = offset + SLAB_HEADER_BYTES + first * class_bytes
        yield start, min(step, extent_count - first)


def _first_pages(
    place: SlabPlace, class_bytes: int, scratch: memoryview, looks: SecondLooks
) -> Iterator[_FirstPage]:
    """The first page of each extent in turn."""
    reads = header_reads(offset=place.offset, byte_count=place.byte_count, class_bytes=class_bytes)
    for start, extent_count in reads:
        offsets = range(start, start + extent_count * class_bytes, class_bytes)
        looks.count_read()
        try:
            pages = _read_together(place, offsets, scratch)
        except DeviceError:
            # For each of them this is the second read.
            yield from [_read_alone(place, offset, scratch) for offset in offsets]
            continue
        for _ in range(READS_MAX - 1):
            if all(page.header for page in pages) or not looks.take():
                break
            pages = _looked_at_again(place, offsets, pages, scratch, looks)
        yield from pages


def _looked_at_again(
    place: SlabPlace,
    offsets: range,
    pages: list[_FirstPage],
    scratch: memoryview,
    looks: SecondLooks,
) -> list[_FirstPage]:
    """These pages, those without a header of their own as another read has them.

    A transfer may go wrong once, and a chunk whose header is not found would be left out for good.
    """
    try:
        again = _read_together(place, offsets, scratch)
    except DeviceError:
        return pages
    pairs = list(zip(pages, again, strict=True))
    wrong_count = sum(first.header is None and second.header is not None for first, second in pairs)
    if wrong_count:
        looks.give_back()
        LOGGER.warning(
            "%d extent headers in slab %d of %s were read wrong once",
            wrong_count,
            place.slab_index,
            place.device.facts.name,
        )
    return [second if first.header is None else first for first, second in pairs]


def _read_together(place: SlabPlace, offsets: range, scratch: memoryview) -> list[_FirstPage]:
    """The pages at evenly spaced offsets in one read; raises DeviceError."""
    buffer = scratch[: offsets[-1] - offsets[0] + HEADER_BYTES]
    place.device.readv([buffer], offsets[0])
    return [
        _first_page(place, offset, buffer[offset - offsets[0] :][:HEADER_BYTES])
        for offset in offsets
    ]


def _read_alone(place: SlabPlace, offset: int, scratch: memoryview) -> _FirstPage:
    page = scratch[:HEADER_BYTES]
    try:
        place.device.readv([page], offset)
    except DeviceError:
        return _FirstPage(None, None)
    return _first_page(place, offset, page)


def _first_page(place: SlabPlace, offset: int, memory: memoryview) -> _FirstPage:
    page = bytes(memory)
    try:
        header = ExtentHeader.decode(page)
    except FormatError:
        return _FirstPage(page, None)
    is_own = (header.device_id, header.offset) == (place.device_id, offset)
    return _FirstPage(page, header if is_own else None)


def _is_in_use(slab_header: SlabHeader, header: ExtentHeader) -> bool:
    """Whether a header belongs to the slab as it is used now.

    One that is older than the slab's is left over from an earlier use.
    """
    geometry = ChunkGeometry.of_slices(header.slice_bytes)
    return (
        header.class_bytes == slab_header.class_bytes
        and header.epoch >= slab_header.epoch
        and geometry.extent_bytes <= header.class_bytes
    )


def _record(place: SlabPlace, header: ExtentHeader, page: bytes) -> ChunkRecord:
    return ChunkRecord(
        extent=Extent(place.device_index, header.offset, header.class_bytes),
        layout_id=header.layout_id,
        token_count=header.token_count,
        epoch=header.epoch,
        stamp=header.stamp,
        header_checksum=page_checksum(page),
    )
