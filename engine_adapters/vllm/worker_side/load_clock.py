"""The time that loads of one worker have been waited for. Pure."""


class LoadClock:
    """Seconds of which each load that runs has its share; one clock for all loads of a worker.

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
