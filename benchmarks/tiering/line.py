"""Conversations in the order in which their turns wait: a place is a number that never changes."""

from collections import deque

_RECENT_STARTS = 64
"""From so many follows how soon a waiting turn starts."""


class Line:
    """Every turn that ever waited, of which the first ones have started."""

    def __init__(self) -> None:
        self._line: list[int] = []
        self._entered_s: dict[int, float] = {}
        self._starts_s: deque[float] = deque([0.0], _RECENT_STARTS)
        self._hinted = 0
        """Before this place conversations are or were hinted."""
        self.started = 0

    def __len__(self) -> int:
        """Turns that wait."""
        return len(self._line) - self.started

    def enter(self, conversation: int, now_s: float) -> None:
        """Hears of a turn that begins to wait."""
        self._line.append(conversation)
        self._entered_s[conversation] = now_s

    def start(self, conversation: int, now_s: float) -> float:
        """Hears that the first one starts, and says how long it waited."""
        self.started += 1
        self._starts_s.append(now_s)
        return now_s - self._entered_s[conversation]

    def head(self, count: int) -> list[int]:
        """The first so many that wait."""
        return self._line[self.started : self.started + count]

    def interval_s(self, now_s: float) -> float:
        """Mean time from one start to the next, of late."""
        return (now_s - self._starts_s[0]) / len(self._starts_s)

    def newly_within(self, window: int) -> dict[int, int | None]:
        """Places of those that are among the first so many now, and were not before."""
        self._hinted = max(self._hinted, self.started)
        end = max(self._hinted, min(len(self._line), self.started + window))
        places: dict[int, int | None] = {
            self._line[place]: place for place in range(self._hinted, end)
        }
        self._hinted = end
        return places
