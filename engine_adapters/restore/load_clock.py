"""The time that loads which share a store have been waited for. Pure."""

from collections.abc import Callable


class LoadClock:
    """Seconds of which each load that runs has its share; one clock for all loads of an engine.

    Loads that run together share the store, as their requests would share the engine: of a second
    each of n loads has 1/n. What a load waits for the engine is no time of the store's, because
    computing would wait for it as well. Not thread-safe.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        """What one load would have been waited for that ran all the time."""
        self._seen_s: float | None = None
        self._excluded_s = 0.0

    def advance(self, now_s: float, *, load_count: int) -> None:
        """It is ``now_s`` on the wall, and ``load_count`` loads have run since the last call."""
        if self._seen_s is not None:
            passed_s = max(0.0, now_s - self._seen_s - self._excluded_s)
            self.now_s += passed_s / max(1, load_count)
        self._seen_s = now_s
        self._excluded_s = 0.0

    def rest(self) -> None:
        """No load has run: the time until the next ``advance`` is nobody's."""
        self._seen_s = None
        self._excluded_s = 0.0

    def exclude(self, duration_s: float) -> None:
        """So much of the time until the next ``advance`` was the engine's."""
        self._excluded_s += duration_s


class LoadShares:
    """A ``LoadClock`` that knows how many loads run. Not thread-safe."""

    def __init__(self) -> None:
        self._clock = LoadClock()
        self._load_count = 0

    def begin(self, clock: Callable[[], float]) -> "LoadShare":
        """A load begins, which reads ``clock``; all of them have to read the same one."""
        self.look(clock())
        self._load_count += 1
        return LoadShare(self, clock)

    def look(self, now_s: float) -> float:
        """What one load has been waited for that runs all the time."""
        self._clock.advance(now_s, load_count=self._load_count)
        return self._clock.now_s

    def end(self, now_s: float) -> None:
        """A load has ended."""
        self.look(now_s)
        self._load_count -= 1
        if not self._load_count:
            self._clock.rest()


class LoadShare:
    """The clock of one load: it runs n times as slowly while n of them run. Not thread-safe."""

    def __init__(self, shares: LoadShares, clock: Callable[[], float]) -> None:
        self._shares = shares
        self._clock = clock
        self._has_ended = False

    def __call__(self) -> float:
        """Seconds of the load's share since some moment."""
        return self._shares.look(self._clock())

    def end(self) -> None:
        """The load is over; once is enough."""
        if not self._has_ended:
            self._has_ended = True
            self._shares.end(self._clock())
