"""How many chunks the map of the index has room for. Pure.

LMDB refuses a change when its map is full, and a deletion is a change too: chunks must be
evicted before. What counts is entries and not pages in use, because a deletion empties no
page: LMDB merges pages that are less than a quarter full.
"""

import math

ENTRY_BYTES = 384
"""Pages for one chunk, generously: an entry has 136 bytes, and a tree whose keys come and go
at random settles at 330 for each (measured over six turnovers of 200,000 chunks)."""

LENGTHS_ENTRY_BYTES = 560
"""The same for a part of the lengths of an encoded chunk's slices, whose entry has 197 bytes."""

RESERVE_BYTES_MAX = 256 * 1024 * 1024
RESERVE_SHARE = 3 / 4
"""Of a small map: a group of changes copies every page that it touches."""

CHUNKS_SHARE_MIN = 1 / 2
"""What other tables leave to the chunks, however large they are."""

FULL_SHARE = 15 / 16
"""Of what the map held when it was full all the same: so much is allowed from then on."""

ENTRIES_SHARE_MIN = 1 / 16
"""So much is for chunks and their lengths however often the map was full: else nothing could
come back."""


class IndexRoom:
    """Says when the index is short of room. Thread-safe."""

    def __init__(self, map_bytes: int) -> None:
        room_bytes = map_bytes - min(map_bytes * RESERVE_SHARE, RESERVE_BYTES_MAX)
        self._floor = int(room_bytes / ENTRY_BYTES * ENTRIES_SHARE_MIN)
        self._entries_max = int(room_bytes / ENTRY_BYTES)
        """Chunks, and their lengths and other tables as if they were chunks."""
        self.others_bytes_max = int(room_bytes * (1 - CHUNKS_SHARE_MIN))
        """What the other tables may take of the map; chunks make way for no more."""

    def left_chunks(self, chunk_count: int, others_bytes: int, lengths_count: int = 0) -> int:
        """For how many more chunks there is room beside so many bytes of other tables.

        ``lengths_count`` are the parts of lengths that the chunks have. Below zero so many
        chunks must go.
        """
        entries_max = max(self._entries_max - self._other_entries(others_bytes), self._floor)
        return math.floor(entries_max - _lengths_entries(lengths_count)) - chunk_count

    def is_surely_enough(self, chunk_count: int, lengths_count: int = 0) -> bool:
        """Whether there is room for another chunk, whatever the other tables take."""
        return self.left_chunks(chunk_count, self.others_bytes_max, lengths_count) > 0

    def was_full(self, chunk_count: int, others_bytes: int, lengths_count: int = 0) -> None:
        """Hears that LMDB had no room for chunks beside so many, and such other tables."""
        entries = chunk_count + self._other_entries(others_bytes) + _lengths_entries(lengths_count)
        self._entries_max = min(self._entries_max, int(entries * FULL_SHARE))

    def _other_entries(self, others_bytes: int) -> float:
        return min(others_bytes, self.others_bytes_max) / ENTRY_BYTES


def chunk_entries(parts_count: int) -> float:
    """What a chunk with so many parts of lengths takes, as chunks without any."""
    return 1 + _lengths_entries(parts_count)


def _lengths_entries(lengths_count: int) -> float:
    return lengths_count * LENGTHS_ENTRY_BYTES / ENTRY_BYTES
