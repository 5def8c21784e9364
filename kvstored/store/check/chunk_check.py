"""Verifying one stored chunk against its record, byte for byte."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import xxhash

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader, page_checksum
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.io.device import Device, DeviceError
from kvstored.store.check.check_report import Problem, ProblemKind

READ_BYTES = 4 * 1024 * 1024
"""Memory that the check of a chunk needs, and its longest read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCheck:
    """Result for one chunk: payload bytes that matched, and what did not."""

    verified_bytes: int = 0
    problems: tuple[Problem, ...] = ()


def check_chunk(
    chunk: ChunkId,
    record: ChunkRecord,
    known_lengths: Callable[[], tuple[int, ...] | None],
    device: Device,
    device_id: bytes,
    scratch: memoryview,
) -> ChunkCheck:
    """Reads a chunk and verifies its header and every slice.

    ``known_lengths`` asks the index for those of the slices, without which an encoded chunk
    cannot be read; it is not called for others. ``scratch`` is aligned memory of
    ``READ_BYTES``. Raises nothing but what that call does: a device error is a problem too.
    """
    where = f"chunk {chunk.key.hex()} at byte {record.extent.offset} of {device.facts.name}"
    try:
        page = scratch[:HEADER_BYTES]
        device.readv([page], record.extent.offset)
        header = _own_header(bytes(page), chunk, record, device_id)
        damaged = _damaged_layers(device, header, record.extent.offset, scratch)
    except FormatError as error:
        problem = Problem(kind=ProblemKind.EXTENT_HEADER, where=where, what=str(error))
        return ChunkCheck(problems=(problem,))
    except DeviceError as error:
        problem = Problem(kind=ProblemKind.DEVICE, where=where, what=str(error))
        return ChunkCheck(problems=(problem,))
    problems = [
        Problem(
            kind=ProblemKind.SLICE, where=where, what=f"checksum of layer {layer} does not match"
        )
        for layer in damaged
    ]
    if header.is_encoded and header.slice_bytes != known_lengths():
        what = "the index does not know the lengths of its slices"
        problems.append(Problem(kind=ProblemKind.INDEX_ENTRY, where=where, what=what))
    return ChunkCheck(
        verified_bytes=sum(
            part.byte_count for layer, part in enumerate(header.slices) if layer not in damaged
        ),
        problems=tuple(problems),
    )


def window_slices(geometry: ChunkGeometry, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(layer, begin, end) of the payload of each slice inside bytes [start, end) of an extent.

    ``begin`` and ``end`` of the result count from ``start``.
    """
    for layer, byte_count in enumerate(geometry.slice_bytes):
        offset = geometry.slice_offsets[layer]
        begin, stop = max(offset, start), min(offset + byte_count, end)
        if begin < stop:
            yield layer, begin - start, stop - start


def _own_header(page: bytes, chunk: ChunkId, record: ChunkRecord, device_id: bytes) -> ExtentHeader:
    """The header that the index vouches for; raises FormatError when it is another."""
    header = ExtentHeader.decode(page)
    geometry = ChunkGeometry.of_slices(header.slice_bytes)
    expected = {
        "page checksum": (page_checksum(page), record.header_checksum),
        "chunk": (header.chunk, chunk),
        "device": (header.device_id, device_id),
        "offset": (header.offset, record.extent.offset),
        "size class": (header.class_bytes, record.extent.byte_count),
        "layout": (header.layout_id, record.layout_id),
        "token count": (header.token_count, record.token_count),
        "stamp": (header.stamp, record.stamp),
        "epoch": (header.epoch, record.epoch),
    }
    different = [name for name, (found, wanted) in expected.items() if found != wanted]
    if different:
        raise FormatError(f"header and index differ in {', '.join(different)}")
    if geometry.extent_bytes > header.class_bytes:
        raise FormatError("slices do not fit the extent")
    return header


def _damaged_layers(
    device: Device, header: ExtentHeader, offset: int, scratch: memoryview
) -> list[int]:
    """Layers whose bytes do not match their checksum; raises DeviceError."""
    geometry = ChunkGeometry.of_slices(header.slice_bytes)
    digests = [xxhash.xxh3_64() for _ in header.slices]
    for start in range(0, geometry.extent_bytes, len(scratch)):
        window = scratch[: min(len(scratch), geometry.extent_bytes - start)]
        device.readv([window], offset + start)
        for layer, begin, end in window_slices(geometry, start, start + len(window)):
            digests[layer].update(window[begin:end])
    return [
        layer
        for layer, (part, digest) in enumerate(zip(header.slices, digests, strict=True))
        if part.byte_count and digest.intdigest() != part.checksum
    ]
