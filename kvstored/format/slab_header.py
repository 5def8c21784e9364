"""The first page of every slab in use: which size class its extents have."""

import struct
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError

MAGIC = b"KVSSLAB\0"
VERSION = 1
SLAB_HEADER_BYTES = 4096
_BODY = struct.Struct("<8sH6x16sQQQ")
_CHECKSUM = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabHeader:
    """Makes the extents of a slab findable without the index.

    ``device_id`` and ``slab_index`` are the slab's own place; ``class_bytes`` is the
    length of each of its extents, which lie back to back behind the header.
    """

    device_id: bytes
    slab_index: int
    class_bytes: int
    epoch: int

    def encode(self) -> bytes:
        """One page; its last eight bytes are the checksum of the rest."""
        body = _BODY.pack(
            MAGIC, VERSION, self.device_id, self.slab_index, self.class_bytes, self.epoch
        ).ljust(SLAB_HEADER_BYTES - _CHECKSUM.size, b"\0")
        return body + _CHECKSUM.pack(checksum(body))

    @classmethod
    def decode(cls, page: bytes) -> "SlabHeader":
        """Parses one page; raises FormatError when it is damaged or no slab header."""
        if len(page) != SLAB_HEADER_BYTES:
            raise FormatError(f"slab header of {len(page)} bytes, expected {SLAB_HEADER_BYTES}")
        body = page[: -_CHECKSUM.size]
        magic, version, device_id, slab_index, class_bytes, epoch = _BODY.unpack_from(body)
        if magic != MAGIC:
            raise FormatError("no slab header")
        if version != VERSION:
            raise FormatError(f"slab header version {version}, expected {VERSION}")
        if _CHECKSUM.unpack_from(page, len(body))[0] != checksum(body):
            raise FormatError("slab header checksum")
        return cls(device_id=device_id, slab_index=slab_index, class_bytes=class_bytes, epoch=epoch)
