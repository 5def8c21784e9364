"""The first page of every extent: whose bytes these are, and their checksums."""

import struct
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId

MAGIC = b"KVSEXTNT"
VERSION = 1
_VERSION_ENCODED = 2
"""Says that the slices have lengths of their own, which the index must know."""
_FIXED = struct.Struct("<8sHHI16sQ16s32s32s32sQQQ")
_SLICE = struct.Struct("<IQ")
_CHECKSUM = struct.Struct("<Q")
SLICES_MAX = (HEADER_BYTES - _FIXED.size - _CHECKSUM.size) // _SLICE.size


@dataclass(frozen=True, slots=True)
class SliceSum:
    """Length and xxh3-64 of one slice; both 0 where the layout stores nothing."""

    byte_count: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentHeader:
    """Everything that is needed to trust an extent and to rebuild its index record.

    ``device_id`` and ``offset`` are the extent's own place: a header that was
    written or read elsewhere than intended does not match. ``class_bytes`` is the
    length of the extent, ``stamp`` grows with every chunk that is written. In an
    ``is_encoded`` chunk the slices have lengths of their own instead of the layout's.
    """

    device_id: bytes
    offset: int
    chunk: ChunkId
    parent_key: bytes
    layout_id: bytes
    class_bytes: int
    epoch: int
    stamp: int
    token_count: int
    slices: tuple[SliceSum, ...]
    is_encoded: bool = False

    @property
    def slice_bytes(self) -> tuple[int, ...]:
        """Length of each slice."""
        return tuple([part.byte_count for part in self.slices])

    def encode(self) -> bytes:
        """One page; its last eight bytes are the checksum of the rest."""
        fixed = _FIXED.pack(
            MAGIC,
            _VERSION_ENCODED if self.is_encoded else VERSION,
            len(self.slices),
            self.token_count,
            self.device_id,
            self.offset,
            self.chunk.namespace_id,
            self.chunk.key,
            self.parent_key.ljust(32, b"\0"),
            self.layout_id,
            self.class_bytes,
            self.epoch,
            self.stamp,
        )
        table = b"".join(_SLICE.pack(part.byte_count, part.checksum) for part in self.slices)
        body = (fixed + table).ljust(HEADER_BYTES - _CHECKSUM.size, b"\0")
        return body + _CHECKSUM.pack(checksum(body))

    @classmethod
    def decode(cls, page: bytes) -> "ExtentHeader":
        """Parses one page; raises FormatError when it is damaged or no header."""
        if len(page) != HEADER_BYTES:
            raise FormatError(f"extent header of {len(page)} bytes, expected {HEADER_BYTES}")
        body = page[: HEADER_BYTES - _CHECKSUM.size]
        magic, version, slice_count, token_count, *rest = _FIXED.unpack_from(body)
        if magic != MAGIC:
            raise FormatError("no extent header")
        if version not in (VERSION, _VERSION_ENCODED):
            raise FormatError(
                f"extent header version {version}, expected {VERSION} or {_VERSION_ENCODED}"
            )
        if page_checksum(page) != checksum(body):
            raise FormatError("extent header checksum")
        if slice_count > SLICES_MAX:
            raise FormatError(f"extent header with {slice_count} slices")
        device_id, offset, namespace, key, parent, layout_id, class_length, epoch, stamp = rest
        slices = tuple(
            [
                SliceSum(*_SLICE.unpack_from(body, _FIXED.size + index * _SLICE.size))
                for index in range(slice_count)
            ]
        )
        return cls(
            device_id=device_id,
            offset=offset,
            chunk=ChunkId(namespace, key),
            parent_key=parent if any(parent) else b"",
            layout_id=layout_id,
            class_bytes=class_length,
            epoch=epoch,
            stamp=stamp,
            token_count=token_count,
            slices=slices,
            is_encoded=version == _VERSION_ENCODED,
        )


def page_checksum(page: bytes) -> int:
    """The checksum that a header page carries, without any check."""
    return int(_CHECKSUM.unpack_from(page, HEADER_BYTES - _CHECKSUM.size)[0])
