"""Frames of an exported file: bytes with a checksum. Pure.

A file begins with MAGIC and its version. Each frame has a head of 24 bytes, little endian: its
kind (uint32), the lengths of its bytes and of those compressed by zstd (uint32 each), 4 bytes of
0, and xxh3-64 of its number in the file, its kind, its length and its compressed bytes. So a frame
that was flipped, cut, moved or doubled is found.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

import xxhash
import zstandard

MAGIC = b"kvstored sequence\n"
VERSION = 1
START = MAGIC + struct.pack("<I", VERSION)
HEAD = struct.Struct("<IIIIQ")
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""A frame has one chunk at most."""
LEVEL = 1
"""States hardly shrink; more takes longer and gains next to nothing."""
_SUMMED = struct.Struct("<QII")


class FileDamagedError(ValueError):
    """The file is not what was exported; the message is one sentence without the file's name."""


class FrameKind(IntEnum):
    """In the order of a file."""

    HEADER = 1
    CHUNK = 2
    END = 3


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What precedes the bytes of a frame."""

    kind: FrameKind
    raw_bytes: int
    packed_bytes: int
    checksum: int


def check_start(start: bytes) -> None:
    """Refuses what is no exported file, or one of another version."""
    if len(start) < len(START) or not start.startswith(MAGIC):
        raise FileDamagedError("it is no exported sequence, or cut at its start")
    (version,) = struct.unpack("<I", start[len(MAGIC) :])
    if version != VERSION:
        raise FileDamagedError(
            f"it has version {version}, and this program reads {VERSION}; use the program that "
            "wrote it"
        )


def packed_frame(number: int, kind: FrameKind, raw: bytes) -> bytes:
    """A whole frame, the ``number``-th of its file."""
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(raw)
    return (
        HEAD.pack(kind, len(raw), len(packed), 0, _checksum(number, kind, len(raw), packed))
        + packed
    )


def parsed_head(data: bytes) -> FrameHead:
    """The head of a frame; raises FileDamagedError."""
    if len(data) < HEAD.size:
        raise FileDamagedError("it is cut: its end is missing")
    kind, raw_bytes, packed_bytes, padding, checksum = HEAD.unpack(data)
    is_known = kind in FrameKind.__members__.values()
    if not is_known or padding or max(raw_bytes, packed_bytes) > FRAME_BYTES_MAX:
        raise FileDamagedError("the head of a frame is damaged")
    return FrameHead(FrameKind(kind), raw_bytes, packed_bytes, checksum)


def unpacked_frame(number: int, head: FrameHead, packed: bytes) -> bytes:
    """The bytes of a frame, verified; raises FileDamagedError."""
    if len(packed) < head.packed_bytes:
        raise FileDamagedError("it is cut: its end is missing")
    if _checksum(number, head.kind, head.raw_bytes, packed) != head.checksum:
        raise FileDamagedError(f"frame {number} is damaged: its checksum does not match")
    try:
        raw = zstandard.ZstdDecompressor().decompress(packed, max_output_size=head.raw_bytes)
    except zstandard.ZstdError as error:
        raise FileDamagedError(f"frame {number} is damaged") from error
    if len(raw) != head.raw_bytes:
        raise FileDamagedError(f"frame {number} is damaged: it has another length")
    return raw


def _checksum(number: int, kind: FrameKind, raw_bytes: int, packed: bytes) -> int:
    hasher = xxhash.xxh3_64(_SUMMED.pack(number, kind, raw_bytes))
    hasher.update(packed)
    return hasher.intdigest()
