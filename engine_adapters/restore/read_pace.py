"""How fast the bytes of one restoration come."""


class ReadPace:
    """The latest pace of a reader, its silence included. Not thread-safe.

    It tells nothing before ``memory_bytes`` have come, which are also those that it goes by, or
    before ``evidence_s`` have passed: a first arrival alone says how long the first answer took.
    """

    __slots__ = (
        "_arrived_bytes",
        "_bytes",
        "_evidence_s",
        "_last_s",
        "_memory_bytes",
        "_now_s",
        "_seconds",
    )

    def __init__(self, *, memory_bytes: float, evidence_s: float, now_s: float) -> None:
        self._memory_bytes = memory_bytes
        self._evidence_s = evidence_s
        self._arrived_bytes = 0
        self._bytes = self._seconds = 0.0
        self._last_s = self._now_s = now_s

    def observe(self, now_s: float, arrived_bytes: int, *, is_reading: bool = True) -> None:
        """``arrived_bytes`` have come in all; with nothing to read a silence says nothing."""
        came = arrived_bytes - self._arrived_bytes
        self._now_s = now_s
        if came > 0:
            if self._bytes + came > self._memory_bytes:
                kept = max(0.0, self._memory_bytes - came)
                if self._bytes > kept:
                    self._seconds *= kept / self._bytes
                    self._bytes = kept
            self._bytes += came
            self._seconds += now_s - self._last_s
            self._arrived_bytes = arrived_bytes
        if came > 0 or not is_reading:
            self._last_s = now_s

    def pass_over(self, duration_s: float) -> None:
        """So long nobody looked: no silence of the reader. What came meanwhile came at once."""
        self._last_s += duration_s
        self._now_s += duration_s

    def remaining_s(self, byte_count: float) -> float | None:
        """Seconds until so many more bytes are there; None while nothing is known."""
        passed_s = self._seconds + self._now_s - self._last_s
        if not self._bytes or (self._bytes < self._memory_bytes and passed_s < self._evidence_s):
            return None
        return byte_count * passed_s / self._bytes
