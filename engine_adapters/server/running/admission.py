"""How many requests the server has at a time."""

from collections.abc import Callable

from engine_adapters.server.protocol.api_error import FAILED, OVERLOADED, ApiError

RETRY_AFTER_S = 1


class Admission:
    """Counts requests from their arrival until the engine holds nothing of them any more.

    The event loop only.
    """

    def __init__(self, *, running_max: int, waiting_max: int) -> None:
        self._places = running_max + waiting_max
        self._on_empty: list[Callable[[], None]] = []
        self.count = 0
        """Requests that have a place."""
        self.is_draining = False
        """Whether no more are taken."""

    def enter(self) -> None:
        """Takes a place; raises ApiError with 429 where there is none, with 503 while draining."""
        if self.is_draining:
            raise ApiError(
                "the server is stopping; send the request to another one",
                status=503,
                kind=FAILED,
                retry_after_s=RETRY_AFTER_S,
            )
        if self.count >= self._places:
            raise ApiError(
                f"{self.count} requests run or wait already; try again later",
                status=429,
                kind=OVERLOADED,
                code="rate_limit_exceeded",
                retry_after_s=RETRY_AFTER_S,
            )
        self.count += 1

    def leave(self) -> None:
        """Gives a place back."""
        self.count -= 1
        if not self.count:
            waiting, self._on_empty = self._on_empty, []
            for call in waiting:
                call()

    def drain(self, on_empty: Callable[[], None]) -> None:
        """Takes no more requests; calls back once when none is left."""
        self.is_draining = True
        if self.count:
            self._on_empty.append(on_empty)
        else:
            on_empty()
