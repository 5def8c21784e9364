"""The requests that wait for room, in order of arrival; the store hears of their conversations."""

from collections import deque

from engine_adapters.runner.engine.conversing import Conversing
from engine_adapters.runner.engine.request import Request


class WaitingLine:
    """Requests by their numbers, which are their places. The engine's thread only.

    The store hears of those that still wait after an admission (``tell``), and again when they run
    or end: a request that runs at once is never mentioned. Each costs constant time.
    """

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}
        self._untold: deque[Request] = deque()
        self._told: dict[int, Conversing] = {}

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def first(self) -> Request:
        """Who runs next."""
        return next(iter(self._requests.values()))

    def append(self, request: Request) -> None:
        """Somebody waits."""
        self._requests[request.request_id] = request
        if request.cuts.conversation is not None:
            self._untold.append(request)

    def remove(self, request_id: int) -> Request | None:
        """Somebody runs, or is aborted; None when nobody of this number waits."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        conversation = self._told.pop(request_id, None)
        if conversation is not None:
            conversation.queue(None)
        return request

    def tell(self) -> None:
        """The store hears of those who came and still wait."""
        while self._untold:
            request = self._untold.popleft()
            conversation = request.cuts.conversation
            if request.request_id in self._requests and conversation is not None:
                self._told[request.request_id] = conversation
                conversation.queue(request.request_id)
