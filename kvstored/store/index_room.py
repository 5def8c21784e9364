"""How many chunks the map of the index has room for. Pure.

LMDB refuses a change when its map is full, and a deletion is a change too: chunks must be
evicted before. What counts is entries and not pages in use, because a deletion empties no
page: LMDB merges pages that are less than a quarter full.
"""

ENTRY_BYTES = 384
"""Pages for one chunk, generously: an entry has 136 bytes, and a tree whose keys come and go
at random settles at 330 for each (measured over six turnovers of 200,000 chunks)."""

RESERVE_BYTES_MAX = 256 * 1024 * 1024
RESERVE_PART = 3 / 4
"""Of a small map: a group of changes copies every page that it touches."""

CHUNKS_PART_MIN = 1 / 2
"""What other tables leave to the chunks, however large they are."""

FULL_PART = 15 / 16
"""Of the chunks at which the map was full all the same: so many are allowed from then on."""


class IndexRoom:
    """Says when the index is short of room. Thread-safe."""

    def __init__(self, map_bytes: int) -> None:
        room_bytes = map_bytes - min(map_bytes * RESERVE_PART, RESERVE_BYTES_MAX)
        self._chunks_max = int(room_bytes / ENTRY_BYTES)
        self._others_bytes_max = room_bytes * (1 - CHUNKS_PART_MIN)

    def is_surely_enough(self, chunk_count: int) -> bool:
        """Whether there is room for another chunk, whatever the other tables take."""
        return chunk_count < self._chunks_max * CHUNKS_PART_MIN

    def is_enough(self, chunk_count: int, others_bytes: int) -> bool:
        """Whether there is room for another chunk beside so many bytes of other tables."""
        others = min(others_bytes, self._others_bytes_max) / ENTRY_BYTES
        return chunk_count < self._chunks_max - others

    def was_full(self, chunk_count: int) -> None:
        """Hears that LMDB had no room at so many chunks."""
        self._chunks_max = min(self._chunks_max, int(chunk_count * FULL_PART))
