"""The readers of one restorer: they share an arena, and end together."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

from kvstored_client import Client

LOOK_INTERVAL_S = 0.1
"""How often one who waits looks whether he is still wanted."""

SNAPSHOTS_SHARE = 2
"""One part in so many of an arena is left to snapshots of steps."""


class Holder(Protocol):
    """Who may hold a part of the arena, on a thread of its own."""

    @property
    def is_running(self) -> bool:
        """Whether it still holds or does anything."""

    def close(self) -> None:
        """Ends it soon; returns at once."""

    def join(self) -> None:
        """Waits until it holds nothing any more."""


class ArenaShare:
    """Lets in as many as there is room for, in the order in which they came. Thread-safe.

    A reader that is let in gets on without the others: several that hold a part of what they need
    would keep each other, and snapshots of steps, from going on. One is always let in,
    however much it needs.
    """

    def __init__(self, byte_count: int) -> None:
        self._byte_count = byte_count
        self._held_bytes: dict[object, int] = {}
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()
        self._begun: list[Holder] = []

    @classmethod
    def of_client(cls, client: Client) -> Self:
        """All but what is left to the snapshots of steps."""
        return cls(client.region_bytes_max - client.region_bytes_max // SNAPSHOTS_SHARE)

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Those that were begun and may still run."""
        return tuple(self._begun)

    def begin(self, holder: Holder) -> None:
        """Ends ``holder`` with the others, in ``close``. One thread only."""
        self._begun = [*(each for each in self._begun if each.is_running), holder]

    def close(self) -> None:
        """Ends all that were begun and waits until they hold nothing. One thread only."""
        for holder in self._begun:
            holder.close()
        for holder in self._begun:
            holder.join()
        self._begun = []

    def enter(self, holder: object, byte_count: int, *, is_wanted: Callable[[], bool]) -> bool:
        """Blocks until ``holder`` may hold ``byte_count`` bytes; False if he is wanted no more."""
        with self._changed:
            self._waiting.append(holder)
            try:
                while is_wanted():
                    if self._waiting[0] is holder and self._has_room(byte_count):
                        self._held_bytes[holder] = byte_count
                        return True
                    self._changed.wait(LOOK_INTERVAL_S)
                return False
            finally:
                self._waiting.remove(holder)
                self._changed.notify_all()

    def leave(self, holder: object) -> None:
        """``holder`` holds nothing any more; nothing happens if he was never let in."""
        with self._changed:
            self._held_bytes.pop(holder, None)
            self._changed.notify_all()

    def _has_room(self, byte_count: int) -> bool:
        held_bytes = sum(self._held_bytes.values())
        return not held_bytes or held_bytes + byte_count <= self._byte_count
