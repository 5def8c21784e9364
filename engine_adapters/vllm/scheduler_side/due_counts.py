"""When the scheduler's side says what it has counted. Pure."""

from collections.abc import Callable, Mapping

from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.pace import Pace


class DueCounts:
    """Counts go to the engine with something else, or after a request's end.

    Computed tokens alone are no reason: any report costs the engine a little of every step. Not
    thread-safe.
    """

    __slots__ = ("_has_ended", "_pace", "_said_tokens", "_tally")

    def __init__(self, tally: Tally, pace: Pace) -> None:
        self._tally = tally
        self._pace = pace
        self._said_tokens = 0
        self._has_ended = False

    def end_request(self) -> None:
        """A request has ended: what was computed for it is said."""
        self._has_ended = True

    def take(self, disconnections: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """What was counted since the last call; nothing where nothing is due.

        ``disconnections`` gives what was counted elsewhere, and is called only if something is due.
        """
        if not (self._has_ended or self._tally.counts):
            return {}
        self._tally.add("computed_tokens", self._pace.computed_tokens - self._said_tokens)
        self._said_tokens = self._pace.computed_tokens
        for name, count in disconnections().items():
            self._tally.add(name, count)
        self._has_ended = False
        return self._tally.take()
