"""What the kernel asks of O_DIRECT transfers to a file, from ``statx(STATX_DIOALIGN)``."""

import ctypes
import struct

from kvstored_contract.limits import ALIGNMENT_BYTES

_AT_EMPTY_PATH = 0x1000
_STATX_DIOALIGN = 0x2000
_STATX_BYTES = 256
_MASK = struct.Struct("<I")
# Byte 152 of struct statx: stx_dio_mem_align and stx_dio_offset_align.
_ALIGNMENT = struct.Struct("<II")
_ALIGNMENT_OFFSET = 152


def direct_alignment(descriptor: int) -> int | None:
    """Alignment in bytes for memory, offsets and lengths; None where O_DIRECT is unsupported.

    Kernels before 6.1 and some file systems do not tell. The answer is then
    ALIGNMENT_BYTES, which every block size in use divides.
    """
    libc = ctypes.CDLL(None)
    result = ctypes.create_string_buffer(_STATX_BYTES)
    if hasattr(libc, "statx"):
        # A call that fails leaves the zeroes, which say that nothing is known.
        libc.statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, result)
    return parse_alignment(result.raw)


def parse_alignment(result: bytes) -> int | None:
    """The answer in a ``struct statx``; see ``direct_alignment``."""
    if not _MASK.unpack_from(result)[0] & _STATX_DIOALIGN:
        return ALIGNMENT_BYTES
    memory, offset = _ALIGNMENT.unpack_from(result, _ALIGNMENT_OFFSET)
    return max(memory, offset) if memory and offset else None
