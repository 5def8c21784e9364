"""From the tag of a key to the rows that may hold it: open addressing in one array. Pure.

An entry is 8 bytes: the tag in the upper half, the row plus 1 in the lower one, and 0
is no entry. The home of an entry is given by the first bits of its tag; it lies there
or behind, and no empty entry is in between. Tags are not unique: who asks compares keys.
"""

import numpy as np
from numpy.typing import NDArray

TAG_BITS = 32
_ROW_MASK = (1 << 32) - 1
_ENTRY_BITS = 64
_BITS_MIN = 10
_WINDOW = 8
"""Entries that are looked at together."""
_SPARE_ENTRIES = 256
"""Behind the last home. The last window of the table is always empty: searches end there."""
_STRETCH_ENTRIES = 1 << 20
"""Entries that are placed together when all are: the memory for it is bounded."""

UNKNOWN = -2
ABSENT = -1


class KeyMap:
    """Rows by tag. Tags have ``TAG_BITS`` bits; the owner serialises the calls.

    Takes 11 to 21 bytes for each row. Growing places all entries again, a tenth of a
    microsecond each.
    """

    def __init__(self) -> None:
        self._count = 0
        self._bits = _BITS_MIN
        self._table = np.zeros((1 << _BITS_MIN) + _SPARE_ENTRIES, np.uint64)

    def __len__(self) -> int:
        """Entries in the map."""
        return self._count

    def rows(self, tag: int) -> list[int]:
        """The rows that were inserted with this tag."""
        found: list[int] = []
        position = self._home(tag)
        while True:
            for entry in self._table[position : position + _WINDOW].tolist():
                if entry == 0:
                    return found
                if entry >> TAG_BITS == tag:
                    found.append((entry & _ROW_MASK) - 1)
            position += _WINDOW

    def first_rows(self, tags: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For each tag a row that has it, ABSENT, or UNKNOWN where only ``rows`` can tell.

        Shapes [n] and [n]. Other rows may have the same tag.
        """
        homes = (tags >> np.uint64(TAG_BITS - self._bits)).astype(np.int64)
        window = self._table[homes[:, np.newaxis] + np.arange(_WINDOW)]
        is_hit = window >> np.uint64(TAG_BITS) == tags[:, np.newaxis]
        is_hit &= window != 0
        hits = np.take_along_axis(window, is_hit.argmax(axis=1)[:, np.newaxis], axis=1)[:, 0]
        rows = (hits & np.uint64(_ROW_MASK)).astype(np.int64) - 1
        missed = np.where((window == 0).any(axis=1), ABSENT, UNKNOWN)
        return np.where(is_hit.any(axis=1), rows, missed)

    def insert(self, tag: int, row: int) -> None:
        """Adds a row under a tag; it must not be there."""
        if self._count + 1 > (3 << self._bits) // 4:
            self._grow()
        position = self._home(tag)
        while self._table[position] != 0:
            position += 1
        if position >= len(self._table) - _WINDOW:
            self._table = np.concatenate([self._table, np.zeros(_SPARE_ENTRIES, np.uint64)])
        self._table[position] = tag << TAG_BITS | row + 1
        self._count += 1

    def remove(self, tag: int, row: int) -> None:
        """Takes a row out that was inserted with this tag; raises KeyError when it was not."""
        wanted = tag << TAG_BITS | row + 1
        hole = self._home(tag)
        while (entry := int(self._table[hole])) != wanted:
            if entry == 0:
                raise KeyError(f"row {row} is not in the map under tag {tag}")
            hole += 1
        position = hole + 1
        # Entries behind the hole that may lie there close it.
        while (entry := int(self._table[position])) != 0:
            if self._home(entry >> TAG_BITS) <= hole:
                self._table[hole] = entry
                hole = position
            position += 1
        self._table[hole] = 0
        self._count -= 1

    def fill(self, entries: NDArray[np.uint64]) -> None:
        """Replaces everything; ``entries`` has shape [n] and is sorted in place.

        Entries are made by ``entries_of``.
        """
        self._count = len(entries)
        while self._count > (3 << self._bits) // 4:
            self._bits += 1
        self._place(entries)

    def _home(self, tag: int) -> int:
        return tag >> (TAG_BITS - self._bits)

    def _grow(self) -> None:
        self._bits += 1
        self._place(self._table[self._table != 0])

    def _place(self, entries: NDArray[np.uint64]) -> None:
        """Lays the entries out in the order of their tags, each at its home or behind."""
        entries.sort()
        table = np.zeros((1 << self._bits) + _SPARE_ENTRIES, np.uint64)
        shift = np.uint64(_ENTRY_BITS - self._bits)
        lead = 0
        for start in range(0, len(entries), _STRETCH_ENTRIES):
            stretch = entries[start : start + _STRETCH_ENTRIES]
            numbers = np.arange(start, start + len(stretch))
            leads = (stretch >> shift).astype(np.int64) - numbers
            leads[0] = max(leads[0], lead)
            np.maximum.accumulate(leads, out=leads)
            lead = int(leads[-1])
            places = leads + numbers
            if places[-1] >= len(table) - _WINDOW:
                table = np.concatenate([table, np.zeros(len(stretch) + _SPARE_ENTRIES, np.uint64)])
            table[places] = stretch
        self._table = table


def entries_of(tags: NDArray[np.uint64], first_row: int) -> NDArray[np.uint64]:
    """Entries for rows that follow each other, as ``KeyMap.fill`` takes them; shape [n]."""
    rows = np.arange(first_row + 1, first_row + 1 + len(tags), dtype=np.uint64)
    return tags << np.uint64(TAG_BITS) | rows
