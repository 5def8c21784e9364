"""Entries of the index that say how long the slices of an encoded chunk are.

They are no part of the chunk's record, so that chunks without a codec do not pay for
them and the entries of each table have one length. A chunk has one entry, a *part*, for
every ``PART_SLICES`` slices.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.identity import CHUNK_ID_BYTES, ChunkId
from kvstored_contract.limits import LAYERS_MAX

PART_SLICES = 32
_PART = struct.Struct(f"<HHQ{PART_SLICES}I")
_CHECKSUM = struct.Struct("<Q")
VERSION = 1
PART_BYTES = _PART.size + _CHECKSUM.size
PART_KEY_BYTES = CHUNK_ID_BYTES + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLengths:
    """Length of each slice of the chunk whose extent header has this checksum.

    The checksum binds them to one record: those of an earlier extent under the same key
    do not count.
    """

    lengths: tuple[int, ...]
    header_checksum: int

    def parts(self, chunk: ChunkId) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each entry, in key order."""
        for number in range(part_count(len(self.lengths))):
            part = self.lengths[number * PART_SLICES : (number + 1) * PART_SLICES]
            padding = (0,) * (PART_SLICES - len(part))
            key = part_key(chunk, number)
            body = _PART.pack(VERSION, len(self.lengths), self.header_checksum, *part, *padding)
            yield key, body + _CHECKSUM.pack(checksum(key + body))


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsPart:
    """One entry: some lengths of the ``slice_count`` that the chunk has."""

    slice_count: int
    lengths: tuple[int, ...]
    header_checksum: int


def part_count(slice_count: int) -> int:
    """Entries of a chunk with so many slices."""
    return -(-slice_count // PART_SLICES)


def part_key(chunk: ChunkId, number: int) -> bytes:
    """Key of the part ``number`` of a chunk: the chunk's identity, then the number."""
    return chunk.encode() + bytes([number])


def decode_part(key: bytes, value: bytes) -> LengthsPart:
    """Parses the value that lay under ``key``; raises FormatError."""
    if len(key) != PART_KEY_BYTES or len(value) != PART_BYTES:
        raise FormatError(f"lengths of slices in {len(value)} bytes under {len(key)} bytes")
    body = value[: _PART.size]
    if _CHECKSUM.unpack_from(value, _PART.size)[0] != checksum(key + body):
        raise FormatError("checksum of lengths of slices")
    version, slice_count, header_checksum, *lengths = _PART.unpack(body)
    if version != VERSION:
        raise FormatError(f"lengths of slices of version {version}, expected {VERSION}")
    first = key[-1] * PART_SLICES
    if not first < slice_count <= LAYERS_MAX:
        raise FormatError(f"part {key[-1]} of the lengths of {slice_count} slices")
    return LengthsPart(
        slice_count=slice_count,
        lengths=tuple(lengths[: slice_count - first]),
        header_checksum=header_checksum,
    )


def join_parts(chunk: ChunkId, values: Sequence[bytes]) -> SliceLengths:
    """The lengths from the values of all parts of a chunk, in order; raises FormatError."""
    parts = [decode_part(part_key(chunk, number), value) for number, value in enumerate(values)]
    kinds = {(part.slice_count, part.header_checksum) for part in parts}
    if len(kinds) != 1:
        raise FormatError("parts of the lengths of slices of different chunks")
    ((slice_count, header_checksum),) = kinds
    if len(parts) != part_count(slice_count):
        raise FormatError(f"{len(parts)} parts of the lengths of {slice_count} slices")
    return SliceLengths(
        lengths=tuple([length for part in parts for length in part.lengths]),
        header_checksum=header_checksum,
    )
