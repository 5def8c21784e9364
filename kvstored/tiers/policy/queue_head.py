"""The head of a queue, as far as it fits: only its hints count."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvstored.tiers.policy.pauses import Pauses
from kvstored.tiers.policy.prefetch_plan import WaitingSequence
from kvstored.tiers.policy.queue_places import QueuePlaces
from kvstored.tiers.policy.ranked_keys import RankedKeys

NameT = TypeVar("NameT", bound=Hashable)
KeyT = TypeVar("KeyT", bound=Hashable)

_GROUP = 0


@dataclass(frozen=True, slots=True)
class QueuedSequence(Generic[NameT, KeyT]):
    """A sequence at a place of a queue, with its chunks; no key is there twice."""

    name: NameT
    place: int
    waiting: WaitingSequence[KeyT]


class QueueHead(Generic[NameT, KeyT]):
    """The sequences that wait, and which of them are the head: those that fit ``capacity_bytes``.

    A chunk of several counts once. Of a sequence that alone is larger its first chunks count. A
    change costs logarithmic time for each chunk that enters or leaves the head with it; ``pauses``
    interrupt it.
    """

    def __init__(self, capacity_bytes: int, pauses: Pauses | None = None) -> None:
        self._capacity_bytes = capacity_bytes
        self._pauses = pauses or Pauses()
        self._used_bytes = 0
        self._sequences: dict[NameT, QueuedSequence[NameT, KeyT]] = {}
        self._inside: RankedKeys[NameT] = RankedKeys()
        """By place, the last first."""
        self._outside: RankedKeys[NameT] = RankedKeys()
        """By place, the first first."""
        self._places: QueuePlaces[NameT, KeyT] = QueuePlaces(self._pauses)
        """Of those inside."""
        self._sizes: dict[KeyT, int] = {}
        """Of their chunks, as the first sequence that named one says."""

    def __len__(self) -> int:
        """Sequences that wait, in the head or not."""
        return len(self._sequences)

    @property
    def used_bytes(self) -> int:
        """Bytes of all chunks of the head."""
        return self._used_bytes

    def sequences(self) -> list[QueuedSequence[NameT, KeyT]]:
        """The head, in the order of its places."""
        return [self._sequences[name] for name in self._inside.keys()][::-1]  # noqa: SIM118

    def change(
        self, entered: Iterable[QueuedSequence[NameT, KeyT]], left: Iterable[NameT] = ()
    ) -> dict[KeyT, int | None]:
        """Changes the queue: who left first. The changed places of chunks, None without one.

        A name that waits already is moved.
        """
        changed: dict[KeyT, int | None] = {}
        for name in left:
            self._drop(name, changed)
        for sequence in entered:
            self._drop(sequence.name, changed)
            self._sequences[sequence.name] = sequence
            first_outside = self._first_outside()
            if first_outside is None or sequence.place < first_outside.place:
                self._let_in(sequence, changed)
                self._shrink(changed)
            else:
                self._outside.put(sequence.name, _GROUP, -sequence.place)
        self._grow(changed)
        return changed

    def resize(self, capacity_bytes: int) -> dict[KeyT, int | None]:
        """Changes how much the head may have. The changed places of chunks, None without one."""
        changed: dict[KeyT, int | None] = {}
        if capacity_bytes == self._capacity_bytes:
            return changed
        for sequence in reversed(self.sequences()):
            self._let_out(sequence, changed)
            self._outside.put(sequence.name, _GROUP, -sequence.place)
        self._capacity_bytes = capacity_bytes
        self._grow(changed)
        return changed

    def _chunks(self, sequence: QueuedSequence[NameT, KeyT]) -> Sequence[KeyT]:
        """Those of a sequence that can ever fit."""
        waiting = sequence.waiting
        return waiting.chunks[: self._capacity_bytes // waiting.chunk_bytes]

    def _first_outside(self) -> QueuedSequence[NameT, KeyT] | None:
        name = next(self._outside.keys(), None)
        return None if name is None else self._sequences[name]

    def _drop(self, name: NameT, changed: dict[KeyT, int | None]) -> None:
        sequence = self._sequences.pop(name, None)
        if sequence is not None and not self._outside.take(name):
            self._let_out(sequence, changed)

    def _let_in(
        self, sequence: QueuedSequence[NameT, KeyT], changed: dict[KeyT, int | None]
    ) -> None:
        chunks = self._chunks(sequence)
        for chunk in self._pauses.over(chunks):
            if chunk not in self._sizes:
                self._sizes[chunk] = sequence.waiting.chunk_bytes
                self._used_bytes += sequence.waiting.chunk_bytes
        self._inside.put(sequence.name, _GROUP, sequence.place)
        entered = self._places.enter(sequence.name, sequence.place, chunks)
        changed.update(self._pauses.over(entered.items()))

    def _let_out(
        self, sequence: QueuedSequence[NameT, KeyT], changed: dict[KeyT, int | None]
    ) -> None:
        self._inside.take(sequence.name)
        left = self._places.leave([sequence.name])
        changed.update(self._pauses.over(left.items()))
        for chunk in self._pauses.over(self._chunks(sequence)):
            if not self._places.sequences(chunk):
                self._used_bytes -= self._sizes.pop(chunk)

    def _shrink(self, changed: dict[KeyT, int | None]) -> None:
        """Lets the last ones out until the others fit."""
        while self._used_bytes > self._capacity_bytes:
            last = self._sequences[next(self._inside.keys())]
            self._let_out(last, changed)
            self._outside.put(last.name, _GROUP, -last.place)

    def _grow(self, changed: dict[KeyT, int | None]) -> None:
        """Lets in who is next while that fits."""
        while (sequence := self._first_outside()) is not None:
            chunks = self._pauses.over(self._chunks(sequence))
            new = sum(chunk not in self._sizes for chunk in chunks)
            if self._used_bytes + new * sequence.waiting.chunk_bytes > self._capacity_bytes:
                return
            self._outside.take(sequence.name)
            self._let_in(sequence, changed)
