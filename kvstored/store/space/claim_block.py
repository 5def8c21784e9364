"""Many claims of the index at once: arrays instead of objects, and their bytes. Pure."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvstored.format.errors import FormatError
from kvstored.format.identity import CHUNK_ID_BYTES

_COUNT = struct.Struct("<Q")
_CLAIM_BYTES = 3 * 8 + CHUNK_ID_BYTES + 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClaimBlock:
    """Chunks, the extents that they say are theirs, and stamps that order the claims.

    ``identities`` has shape [n, CHUNK_ID_BYTES] and holds encoded chunk ids; all else has
    shape [n]. Extents may be anything.
    """

    identities: NDArray[np.uint8]
    devices: NDArray[np.uint16]
    offsets: NDArray[np.uint64]
    byte_counts: NDArray[np.uint64]
    stamps: NDArray[np.uint64]

    def __len__(self) -> int:
        """Number of claims."""
        return len(self.stamps)

    @classmethod
    def empty(cls) -> "ClaimBlock":
        """No claims."""
        return cls.decode(_COUNT.pack(0))

    def select(self, mask: NDArray[np.bool_]) -> "ClaimBlock":
        """The claims where ``mask``, of shape [n], is set."""
        return ClaimBlock(
            identities=self.identities[mask],
            devices=self.devices[mask],
            offsets=self.offsets[mask],
            byte_counts=self.byte_counts[mask],
            stamps=self.stamps[mask],
        )

    def encode(self) -> bytes:
        """The number of claims, then column after column."""
        columns = (self.stamps, self.offsets, self.byte_counts)
        return b"".join(
            [
                _COUNT.pack(len(self)),
                *(column.astype("<u8", copy=False).tobytes() for column in columns),
                self.identities.tobytes(),
                self.devices.astype("<u2", copy=False).tobytes(),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> "ClaimBlock":
        """Parses ``encode``'s bytes, which the arrays then refer to; raises FormatError."""
        if len(data) < _COUNT.size:
            raise FormatError(f"claim block of {len(data)} bytes")
        count: int = _COUNT.unpack_from(data)[0]
        if len(data) != _COUNT.size + count * _CLAIM_BYTES:
            raise FormatError(f"claim block of {len(data)} bytes for {count} claims")
        columns = np.frombuffer(data, "<u8", 3 * count, _COUNT.size).reshape(3, count)
        start = _COUNT.size + columns.nbytes
        identities = np.frombuffer(data, np.uint8, count * CHUNK_ID_BYTES, start)
        return cls(
            stamps=columns[0],
            offsets=columns[1],
            byte_counts=columns[2],
            identities=identities.reshape(count, CHUNK_ID_BYTES),
            devices=np.frombuffer(data, "<u2", count, start + identities.nbytes),
        )
