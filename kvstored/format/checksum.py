"""The checksum of everything that lies on media: xxh3-64, against accidental damage."""

import xxhash
from typing_extensions import Buffer


def checksum(data: Buffer) -> int:
    """xxh3-64 of ``data``; releases the interpreter lock while it runs."""
    return int(xxhash.xxh3_64_intdigest(data))
