"""Whether a daemon hangs, by how long its calls take. Pure."""


class SlowCalls:
    """Calls that go on, and what the last ones say. Not thread-safe; times are in seconds.

    A call that takes longer than ``slow_s`` raises doubt, whether it has ended or not. While one
    of them goes on, and for ``pause_s`` after the last has ended, no call is admitted; then one in
    each ``pause_s``, until one is fast.
    """

    def __init__(self, *, slow_s: float, pause_s: float) -> None:
        self._slow_s = slow_s
        self._pause_s = pause_s
        self._started_s: dict[int, float] = {}
        self._next_call = 0
        self._is_doubted = False
        self._silent_until_s = 0.0

    @property
    def call_count(self) -> int:
        """Calls that go on."""
        return len(self._started_s)

    def is_raised(self, now_s: float) -> bool:
        """Whether the daemon is thought to hang."""
        return self._is_doubted or self._is_hanging(now_s)

    def admits(self, now_s: float) -> bool:
        """Whether a call may be made now; the one that asks makes it."""
        if self._is_hanging(now_s):
            return False
        if self._is_doubted:
            if now_s < self._silent_until_s:
                return False
            self._silent_until_s = now_s + self._pause_s
        return True

    def begin(self, now_s: float) -> int:
        """A call begins; the number by which it ends."""
        call = self._next_call
        self._next_call += 1
        self._started_s[call] = now_s
        return call

    def end(self, call: int, now_s: float) -> None:
        """A call ends."""
        self._is_doubted = now_s - self._started_s.pop(call) > self._slow_s
        if self._is_doubted:
            self._silent_until_s = now_s + self._pause_s

    def _is_hanging(self, now_s: float) -> bool:
        return any(now_s - started_s > self._slow_s for started_s in self._started_s.values())
