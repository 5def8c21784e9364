"""A run of bytes in a payload, entropy coded where that makes it shorter.

The coder is zstandard's Huffman stage. Its parameters make the search for repetitions
as coarse as it can be: bytes of states repeat by chance only, and every match found
costs more bits, and more time to decode, than the literals that it stands for.
"""

import struct

import numpy as np
import zstandard
from numpy.typing import NDArray

from engine_adapters.codecs.errors import PayloadError

_WINDOW_LOG = 17
_PARAMETERS = zstandard.ZstdCompressionParameters(
    strategy=zstandard.STRATEGY_FAST,
    # Also the length of a block: each has a code table of its own.
    window_log=_WINDOW_LOG,
    hash_log=6,
    chain_log=6,
    search_log=1,
    min_match=7,
    write_content_size=True,
)
_HEADER = struct.Struct("<II")
_WORTH_SIXTEENTHS = 14
"""A segment is compressed if that leaves less than so many sixteenths: decoding takes time."""

_COMPRESSED_BYTES_MIN = 4096
"""Shorter segments are never compressed: the table and the call would outweigh the gain."""

_STORED = 0
_COMPRESSED = 1


def segment_bytes_max(byte_count: int) -> int:
    """Upper bound of the bytes of a segment."""
    return _HEADER.size + byte_count


def pack_segment(values: NDArray[np.uint8]) -> bytes:
    """The bytes [values] as a segment."""
    if values.size >= _COMPRESSED_BYTES_MIN:
        frame = zstandard.ZstdCompressor(compression_params=_PARAMETERS).compress(values.data)
        if len(frame) * 16 < values.size * _WORTH_SIXTEENTHS:
            return _HEADER.pack(_COMPRESSED, len(frame)) + frame
    return _HEADER.pack(_STORED, values.size) + values.tobytes()


class SegmentReader:
    """Reads the segments of a body in the order in which they were packed. One thread only."""

    def __init__(self, body: NDArray[np.uint8]) -> None:
        self._body = body

    def read(self, byte_count: int) -> NDArray[np.uint8]:
        """The next segment, which must decode to ``byte_count`` bytes; read-only.

        Raises PayloadError, before anything is allocated for a segment of another length.
        """
        method, stored_bytes = _HEADER.unpack(self._take(_HEADER.size).data)
        stored = self._take(stored_bytes)
        if method == _COMPRESSED:
            return _decompressed(stored, byte_count)
        if method != _STORED or stored_bytes != byte_count:
            raise PayloadError(f"a segment of method {method} and {stored_bytes} bytes")
        return stored

    def finish(self) -> None:
        """Raises PayloadError if anything is left."""
        if self._body.size:
            raise PayloadError(f"{self._body.size} bytes behind the last segment")

    def _take(self, byte_count: int) -> NDArray[np.uint8]:
        if byte_count > self._body.size:
            raise PayloadError(f"a segment of {byte_count} bytes where {self._body.size} are left")
        taken, self._body = self._body[:byte_count], self._body[byte_count:]
        return taken


def _decompressed(frame: NDArray[np.uint8], byte_count: int) -> NDArray[np.uint8]:
    try:
        # zstandard allocates what a frame says of itself, and then checks that it is right.
        frame_header = zstandard.get_frame_parameters(frame.data)
        if frame_header.content_size != byte_count or frame_header.window_size > 1 << _WINDOW_LOG:
            raise PayloadError(f"a compressed segment is not one of {byte_count} bytes")
        # A decompressor cannot be shared by threads; a new one costs a few microseconds.
        values = zstandard.ZstdDecompressor().decompress(frame.data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise PayloadError(f"a compressed segment is damaged: {error}") from error
    return np.frombuffer(values, np.uint8)
