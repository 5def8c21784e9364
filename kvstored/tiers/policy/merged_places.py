"""The queues of several engines as one: who is as far from the head of its own waits as long."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

EngineT = TypeVar("EngineT", bound=Hashable)
NameT = TypeVar("NameT", bound=Hashable)

LAG_SHARE = 8
"""A queue may lag by this part of its length before it is moved, so that moves cost little."""
LAG_MIN = 16
"""So little lag is never worth a move."""
_SPARE_ENTRIES = 64
"""A heap may have so many entries more than twice the names that wait."""


@dataclass(slots=True)
class _Queue(Generic[NameT]):
    """``offset`` leads from an engine's places to those of all; ``changes`` are since its move."""

    offset: int = 0
    places: dict[NameT, int] = field(default_factory=dict)
    heap: list[tuple[int, NameT]] = field(default_factory=list)
    changes: int = 0

    def put(self, name: NameT, place: int) -> None:
        """Queues a name, or moves it."""
        self.places[name] = place
        heappush(self.heap, (place, name))
        if len(self.heap) > 2 * len(self.places) + _SPARE_ENTRIES:
            self.heap = [(place, name) for name, place in self.places.items()]
            heapify(self.heap)

    def head(self) -> int:
        """The first place of a queue that is not empty, on the scale of all."""
        while self.places.get(self.heap[0][1]) != self.heap[0][0]:
            heappop(self.heap)
        return self.heap[0][0] + self.offset

    def lag_max(self) -> int:
        """How far its head may be from the others'."""
        return max(LAG_MIN, len(self.places) // LAG_SHARE)


class MergedPlaces(Generic[EngineT, NameT]):
    """Puts the places that engines count by themselves on one scale.

    On it the heads of all queues are at about the same place, the *clock*, which never goes back.
    A queue that lags is moved as a whole, at most once in as many changes as a part of its length
    (``LAG_SHARE``): so a change costs logarithmic time, amortised, and the distance from the
    head is right to that part of a queue. Names of one engine can be compared.
    """

    def __init__(self) -> None:
        self._queues: dict[EngineT, _Queue[NameT]] = {}
        self._clock = 0

    def change(
        self, engine: EngineT, entered: Mapping[NameT, int], left: Iterable[NameT]
    ) -> dict[tuple[EngineT, NameT], int]:
        """Changes an engine's queue: who left first. The places of all who entered or moved."""
        queue = self._queues.setdefault(engine, _Queue())
        for name in left:
            queue.places.pop(name, None)
        is_new = not queue.places
        for name, place in entered.items():
            queue.put(name, place)
        for each in self._queues.values():
            each.changes += 1
        moved = {(engine, name): place + queue.offset for name, place in entered.items()}
        if not queue.places:
            del self._queues[engine]
        elif is_new:
            moved |= self._move(engine, queue)
        else:
            self._clock = max(self._clock, queue.head())
        return moved | self._catch_up()

    def _catch_up(self) -> dict[tuple[EngineT, NameT], int]:
        """Moves queues whose heads are too far from the clock, if there are others."""
        moved: dict[tuple[EngineT, NameT], int] = {}
        if len(self._queues) > 1:
            for engine, queue in self._queues.items():
                lag_max = queue.lag_max()
                if queue.changes >= lag_max and self._clock - queue.head() > lag_max:
                    moved |= self._move(engine, queue)
        return moved

    def _move(self, engine: EngineT, queue: _Queue[NameT]) -> dict[tuple[EngineT, NameT], int]:
        """Puts the head of a queue at the clock."""
        queue.offset += self._clock - queue.head()
        queue.changes = 0
        return {(engine, name): place + queue.offset for name, place in queue.places.items()}
