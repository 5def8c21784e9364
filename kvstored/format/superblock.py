"""The superblock: what makes a file a device of one device set."""

import struct
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError

MAGIC = b"KVSSUPER"
VERSION = 1
SUPERBLOCK_BYTES = 4096
DATA_OFFSET = 1024 * 1024
"""Where slabs begin; the first superblock has the space before it for itself."""
_BODY = struct.Struct("<8sHHHxx16s16sQQQ")
_CHECKSUM = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Superblock:
    """One device's place in its set; two equal copies lie on the device.

    ``set_id`` and ``device_id`` are 16 random bytes from format time. ``epoch``
    counts the starts of the daemon.
    """

    set_id: bytes
    device_id: bytes
    device_index: int
    device_count: int
    capacity_bytes: int
    slab_bytes: int
    epoch: int

    @property
    def copy_offsets(self) -> tuple[int, int]:
        """Where the two copies lie: the first and the last page."""
        return 0, self.capacity_bytes - SUPERBLOCK_BYTES

    @property
    def slab_count(self) -> int:
        """Whole slabs between the two copies."""
        return max(0, self.copy_offsets[1] - DATA_OFFSET) // self.slab_bytes

    def slab_offset(self, slab_index: int) -> int:
        """Device offset of a slab's header."""
        return DATA_OFFSET + slab_index * self.slab_bytes

    def encode(self) -> bytes:
        """One page; its last eight bytes are the checksum of the rest."""
        body = _BODY.pack(
            MAGIC,
            VERSION,
            self.device_index,
            self.device_count,
            self.set_id,
            self.device_id,
            self.capacity_bytes,
            self.slab_bytes,
            self.epoch,
        ).ljust(SUPERBLOCK_BYTES - _CHECKSUM.size, b"\0")
        return body + _CHECKSUM.pack(checksum(body))

    @classmethod
    def decode(cls, page: bytes) -> "Superblock":
        """Parses one page; raises FormatError when it is damaged or no superblock."""
        if len(page) != SUPERBLOCK_BYTES:
            raise FormatError(f"superblock of {len(page)} bytes, expected {SUPERBLOCK_BYTES}")
        body = page[: -_CHECKSUM.size]
        magic, version, *fields = _BODY.unpack_from(body)
        if magic != MAGIC:
            raise FormatError("no superblock")
        if version != VERSION:
            raise FormatError(f"superblock version {version}, expected {VERSION}")
        if _CHECKSUM.unpack_from(page, len(body))[0] != checksum(body):
            raise FormatError("superblock checksum")
        device_index, device_count, set_id, device_id, capacity_bytes, slab_bytes, epoch = fields
        if slab_bytes == 0:
            raise FormatError("superblock with slabs of 0 bytes")
        return cls(
            set_id=set_id,
            device_id=device_id,
            device_index=device_index,
            device_count=device_count,
            capacity_bytes=capacity_bytes,
            slab_bytes=slab_bytes,
            epoch=epoch,
        )
