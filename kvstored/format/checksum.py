"""The checksum of everything that lies on media: xxh3-64, against accidental damage."""

import numpy as np
import xxhash
from numpy.typing import NDArray
from typing_extensions import Buffer

CHECKSUM_BYTES = 8


def checksum(data: Buffer) -> int:
    """xxh3-64 of ``data``; releases the interpreter lock while it runs."""
    return int(xxhash.xxh3_64_intdigest(data))


def entry_checksums(joined: bytes, entry_bytes: int) -> NDArray[np.uint64]:
    """xxh3-64 of each of many entries, side by side, without its last eight bytes: shape [n].

    Those are where an entry's own checksum lies.
    """
    summed_bytes, starts = entry_bytes - CHECKSUM_BYTES, range(0, len(joined), entry_bytes)
    summed = [joined[start : start + summed_bytes] for start in starts]
    return np.fromiter(map(xxhash.xxh3_64_intdigest, summed), np.uint64, len(summed))
