"""One entry of the index: where a chunk lies and what its header must be."""

import struct
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId

_RECORD = struct.Struct("<HHIQQ32sQQQ")
_CHECKSUM = struct.Struct("<Q")
VERSION = 1
RECORD_BYTES = _RECORD.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRecord:
    """What the index knows of a chunk.

    ``header_checksum`` is the checksum of the extent's header page. The header holds
    the checksums of the slices, so the index vouches for every byte of the chunk: a
    stale, lost or misdirected write does not match it. ``stamp`` orders records by
    the time they were written.
    """

    extent: Extent
    layout_id: bytes
    token_count: int
    epoch: int
    stamp: int
    header_checksum: int

    def encode(self, chunk: ChunkId) -> bytes:
        """Value of the entry; its checksum covers the entry's key too."""
        body = _RECORD.pack(
            VERSION,
            self.extent.device_index,
            self.token_count,
            self.extent.offset,
            self.extent.byte_count,
            self.layout_id,
            self.epoch,
            self.stamp,
            self.header_checksum,
        )
        return body + _CHECKSUM.pack(checksum(chunk.encode() + body))

    @classmethod
    def decode(cls, chunk: ChunkId, value: bytes) -> "ChunkRecord":
        """Parses the value that lay under ``chunk``; raises FormatError."""
        if len(value) != RECORD_BYTES:
            raise FormatError(f"chunk record of {len(value)} bytes, expected {RECORD_BYTES}")
        body = value[: _RECORD.size]
        if _CHECKSUM.unpack_from(value, _RECORD.size)[0] != checksum(chunk.encode() + body):
            raise FormatError("chunk record checksum")
        version, device, tokens, offset, length, layout_id, epoch, stamp, header = _RECORD.unpack(
            body
        )
        if version != VERSION:
            raise FormatError(f"chunk record version {version}, expected {VERSION}")
        return cls(
            extent=Extent(device, offset, length),
            layout_id=layout_id,
            token_count=tokens,
            epoch=epoch,
            stamp=stamp,
            header_checksum=header,
        )
