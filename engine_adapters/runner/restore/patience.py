"""How long one restoration has waited for the store, and how long it still may."""

from collections.abc import Callable


class Patience:
    """Counts the time in which nothing could be done; computing does not count.

    Not thread-safe.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._waited_s = 0.0
        self._since_s: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether nothing can be done now."""
        return self._since_s is not None

    @property
    def waited_s(self) -> float:
        """Seconds so far."""
        if self._since_s is None:
            return self._waited_s
        return self._waited_s + self._clock() - self._since_s

    def remaining_s(self) -> float:
        """How long the store may still be waited for."""
        return max(0.0, self._timeout_s - self.waited_s)

    def begin_wait(self) -> None:
        """Nothing can be done from here on. A second call does nothing."""
        if self._since_s is None:
            self._since_s = self._clock()

    def end_wait(self) -> None:
        """Something can be done again. A second call does nothing."""
        self._waited_s = self.waited_s
        self._since_s = None
