"""Many entries of the chunk table at once, as ``ChunkRecord`` parses one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvstored.format.checksum import entry_checksums
from kvstored.format.chunk_record import RECORD_BYTES, VERSION
from kvstored.format.identity import CHUNK_ID_BYTES

_ENTRY = np.dtype(
    [
        ("identity", np.uint8, CHUNK_ID_BYTES),
        ("version", "<u2"),
        ("device", "<u2"),
        ("token_count", "<u4"),
        ("offset", "<u8"),
        ("byte_count", "<u8"),
        ("layout_id", "V32"),
        ("epoch", "<u8"),
        ("stamp", "<u8"),
        ("header_checksum", "<u8"),
        ("checksum", "<u8"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkRecords:
    """The sound ones of many entries; arrays of shape [n], ``identities`` [n, 48].

    ``damaged_keys`` are those of the others.
    """

    identities: NDArray[np.uint8]
    devices: NDArray[np.uint16]
    offsets: NDArray[np.uint64]
    byte_counts: NDArray[np.uint64]
    stamps: NDArray[np.uint64]
    damaged_keys: list[bytes]


def decode_many(keys: Sequence[bytes], values: Sequence[bytes]) -> ChunkRecords:
    """Parses entries; an entry is damaged where ``ChunkRecord.decode`` would say so."""
    damaged_keys: list[bytes] = []
    if set(map(len, keys)) - {CHUNK_ID_BYTES} or set(map(len, values)) - {RECORD_BYTES}:
        sized = [
            (key, value)
            for key, value in zip(keys, values, strict=True)
            if (len(key), len(value)) == (CHUNK_ID_BYTES, RECORD_BYTES)
        ]
        known = {key for key, _ in sized}
        damaged_keys += [key for key in keys if key not in known]
        keys, values = [key for key, _ in sized], [value for _, value in sized]
    joined = b"".join([part for entry in zip(keys, values, strict=True) for part in entry])
    entries = np.frombuffer(joined, _ENTRY)
    sums = entry_checksums(joined, _ENTRY.itemsize)
    is_sound = (entries["checksum"] == sums) & (entries["version"] == VERSION)
    if not is_sound.all():
        damaged_keys += [keys[index] for index in np.flatnonzero(~is_sound).tolist()]
        entries = entries[is_sound]
    return ChunkRecords(
        identities=np.ascontiguousarray(entries["identity"]),
        devices=np.ascontiguousarray(entries["device"]),
        offsets=np.ascontiguousarray(entries["offset"]),
        byte_counts=np.ascontiguousarray(entries["byte_count"]),
        stamps=np.ascontiguousarray(entries["stamp"]),
        damaged_keys=damaged_keys,
    )
