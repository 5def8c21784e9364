"""What a store may hold after what it was asked and has answered."""

import threading
from collections.abc import Iterable

from tests.faults.kill.payload import payload_of

Generation = int | None
"""Which bytes of a chunk; None is its absence."""


class ViolationError(AssertionError):
    """The store broke a promise; the message says which and for which chunk."""


class Ledger:
    """For each chunk the generations that it may have now.

    A change that was asked for adds a possibility; only its answer takes others away.
    ``safe_uses`` is how many puts and reads of chunks may follow an acked put before
    eviction may take the chunk; None where nothing is evicted. Thread-safe as long as
    each number belongs to one thread.
    """

    def __init__(self, *, safe_uses: int | None = None) -> None:
        self._safe_uses = safe_uses
        self._possible: dict[int, set[Generation]] = {}
        self._latest: dict[int, int] = {}
        self._stored_at: dict[int, int] = {}
        self._uses = 0
        self._lock = threading.Lock()
        self.acked_count = 0
        self.verified_count = 0

    @property
    def numbers(self) -> list[int]:
        """All chunks, those acked longest ago first."""
        return sorted(self._possible, key=lambda number: self._stored_at.get(number, 0))

    def may_exist(self, number: int) -> bool:
        """Whether the chunk may be there."""
        return self._possible.get(number, {None}) != {None}

    def put_begins(self, number: int) -> int:
        """A put is sent; returns the generation that it shall have."""
        generation = self._latest.get(number, 0) + 1
        self._latest[number] = generation
        self._possible.setdefault(number, {None}).add(generation)
        self.used(1)
        return generation

    def is_durable(self, number: int, generation: int) -> None:
        """A put was acked as durable."""
        self._possible[number] = {generation}
        self._acked(number)

    def existed_durably(self, number: int, generation: int) -> None:
        """A put was acked as durable, but what was there before is what is there."""
        self._possible[number] -= {generation, None}
        self._acked(number)

    def used(self, count: int) -> None:
        """Chunks become younger than others."""
        with self._lock:
            self._uses += count

    def delete_begins(self, numbers: Iterable[int]) -> None:
        """A deletion is sent."""
        for number in numbers:
            self._possible.setdefault(number, {None}).add(None)

    def deleted(self, numbers: Iterable[int]) -> None:
        """A deletion was answered, which means that it is durable."""
        for number in numbers:
            self._possible[number] = {None}

    def forget(self, numbers: Iterable[int]) -> None:
        """Says no more about chunks that eviction has taken long ago."""
        for number in numbers:
            self._possible.pop(number, None)
            self._stored_at.pop(number, None)

    def seen(self, number: int, content: bytes | None, *, settles: bool) -> None:
        """Judges what a read brought; raises ViolationError.

        ``settles``: everything readable is durable, because the daemon has just started.
        """
        possible = self._possible.setdefault(number, {None})
        if content is None:
            generation = None
            if None not in possible and not self._may_be_evicted(number):
                raise ViolationError(
                    f"chunk {number}: acked generation {possible} is not readable "
                    f"(use {self._stored_at.get(number)} of {self._uses})"
                )
        else:
            generation = self._generation_of(number, content)
        self.verified_count += 1
        if settles:
            self._possible[number] = {generation}

    def _acked(self, number: int) -> None:
        with self._lock:
            self.acked_count += 1
            self._stored_at[number] = self._uses

    def _may_be_evicted(self, number: int) -> bool:
        if self._safe_uses is None:
            return False
        return self._uses - self._stored_at.get(number, 0) >= self._safe_uses

    def _generation_of(self, number: int, content: bytes) -> int:
        possible = self._possible[number]
        for generation in possible - {None}:
            if generation is not None and content == payload_of(number, generation):
                return generation
        known = next(
            (
                f"those of generation {generation}"
                for generation in range(1, self._latest.get(number, 0) + 1)
                if content == payload_of(number, generation)
            ),
            "those of no generation",
        )
        raise ViolationError(f"chunk {number} may be {possible} but its bytes are {known}")
