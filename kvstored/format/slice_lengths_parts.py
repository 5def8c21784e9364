"""Many entries of lengths of slices at once, as ``decode_part`` parses one."""

from collections.abc import Sequence

import numpy as np

from kvstored.format.checksum import entry_checksums
from kvstored.format.identity import CHUNK_ID_BYTES
from kvstored.format.slice_lengths import PART_SLICES, VERSION
from kvstored_contract.limits import LAYERS_MAX

_ENTRY = np.dtype(
    [
        ("identity", f"V{CHUNK_ID_BYTES}"),
        ("number", np.uint8),
        ("version", "<u2"),
        ("slice_count", "<u2"),
        ("header_checksum", "<u8"),
        ("lengths", "<u4", PART_SLICES),
        ("checksum", "<u8"),
    ]
)


def damaged_parts(keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
    """Which entries ``decode_part`` would refuse, by their places.

    Every key has PART_KEY_BYTES and every value PART_BYTES. Takes about a microsecond an entry.
    """
    joined = b"".join([part for entry in zip(keys, values, strict=True) for part in entry])
    entries = np.frombuffer(joined, _ENTRY)
    slice_counts = entries["slice_count"]
    is_sound = (
        (entries["checksum"] == entry_checksums(joined, _ENTRY.itemsize))
        & (entries["version"] == VERSION)
        & (slice_counts <= LAYERS_MAX)
        & (entries["number"].astype(np.uint16) * PART_SLICES < slice_counts)
    )
    places: list[int] = np.flatnonzero(~is_sound).tolist()
    return places
