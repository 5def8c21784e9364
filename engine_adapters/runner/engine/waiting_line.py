"""The requests that wait for room, in order of arrival; the store hears of their conversations."""

from collections import deque

from engine_adapters.runner.engine.request import Request


class WaitingLine:
    """Requests by their numbers, which are their places. The engine's thread only.

    Those that still wait after an admission are told of (``tell``), and taken back when they run
    or end: a request that runs at once is never mentioned. Each costs constant time.
    """

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}
        self._untold: deque[Request] = deque()

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

    def remove(self, request_id: int) -> bool:
        """Somebody runs, or is aborted; False when nobody of this number waits."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return False
        if request.is_hinted and request.cuts.conversation is not None:
            request.is_hinted = False
            request.cuts.conversation.leave_queue()
        return True

    def tell(self) -> None:
        """The store hears of those who came and still wait."""
        while self._untold:
            request = self._untold.popleft()
            if request.request_id in self._requests and request.cuts.conversation is not None:
                request.is_hinted = True
                request.cuts.conversation.enter_queue(request.request_id)
