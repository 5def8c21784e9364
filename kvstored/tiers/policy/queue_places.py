"""The places of chunks in a queue, from the places of the sequences that wait in it."""

from collections.abc import Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from kvstored.tiers.policy.pauses import Pauses
from kvstored_contract.limits import HINTED_CHUNKS_PER_SESSION_MAX

NameT = TypeVar("NameT", bound=Hashable)
KeyT = TypeVar("KeyT", bound=Hashable)

_SPARE_ENTRIES = 64
"""A heap may have so many entries more than twice the sequences of its key."""
_POSITION_BITS = HINTED_CHUNKS_PER_SESSION_MAX.bit_length()
_NUMBER_BITS = 24
"""Many more sequences than ever wait are between two of equal number."""
PLACE_BITS = _POSITION_BITS + _NUMBER_BITS
"""The lower bits of a chunk's place; the others are the place of its sequence."""


class QueuePlaces(Generic[NameT, KeyT]):
    """Turns changes of a queue into what ``EvictionPolicy.hint`` takes.

    Each chunk has a place of its own, after those before it in its sequence: what goes first is the
    last chunk of the last sequence, and all of that one goes before the next, also where sequences
    have the same place. A chunk of several has its place in the first of them. A change costs
    logarithmic time for each of its chunks, however long the queue is; ``pauses`` interrupt it.
    """

    def __init__(self, pauses: Pauses | None = None) -> None:
        self._pauses = pauses or Pauses()
        self._waiting: dict[NameT, tuple[int, Sequence[KeyT]]] = {}
        """By name, the number of its entries and its keys."""
        self._heaps: dict[KeyT, list[tuple[int, int, NameT]]] = {}
        """By key, places with numbers of entries; the first one is of a sequence that waits."""
        self._counts: dict[KeyT, int] = {}
        """By key, the sequences that wait for it."""
        self._numbers = count(1)

    def __len__(self) -> int:
        """Sequences that wait."""
        return len(self._waiting)

    def sequences(self, key: KeyT) -> int:
        """How many sequences wait for a key."""
        return self._counts.get(key, 0)

    def enter(self, name: NameT, place: int, keys: Sequence[KeyT]) -> dict[KeyT, int | None]:
        """Queues a sequence with its keys; the changed places. Raises ValueError if it waits."""
        if name in self._waiting:
            raise ValueError(f"{name!r} waits already")
        number = next(self._numbers)
        self._waiting[name] = (number, keys)
        changed: dict[KeyT, int | None] = {}
        first = place << PLACE_BITS | (number % (1 << _NUMBER_BITS)) << _POSITION_BITS
        for position, key in enumerate(self._pauses.over(keys)):
            heap = self._heaps.setdefault(key, [])
            heappush(heap, (first + position, number, name))
            self._counts[key] = self._counts.get(key, 0) + 1
            if heap[0][1] == number:
                changed[key] = first + position
        return changed

    def leave(self, names: Iterable[NameT]) -> dict[KeyT, int | None]:
        """Takes sequences out, if they wait; the changed places, None for keys without one."""
        changed: dict[KeyT, int | None] = {}
        for name in names:
            _, keys = self._waiting.pop(name, (0, ()))
            for key in self._pauses.over(keys):
                self._pass(key, changed)
        return changed

    def _pass(self, key: KeyT, changed: dict[KeyT, int | None]) -> None:
        """Hears that one sequence less waits for a key: notes its next place, if it has another."""
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key], self._heaps[key]
            changed[key] = None
            return
        heap = self._heaps[key]
        before = heap[0]
        if len(heap) > 2 * self._counts[key] + _SPARE_ENTRIES:
            heap[:] = [entry for entry in heap if self._waits(entry)]
            heapify(heap)
        while not self._waits(heap[0]):
            heappop(heap)
        if heap[0] != before:
            changed[key] = heap[0][0]

    def _waits(self, entry: tuple[int, int, NameT]) -> bool:
        known = self._waiting.get(entry[2])
        return known is not None and known[0] == entry[1]
