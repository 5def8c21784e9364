"""One sink for an engine whose requests belong to several namespaces."""

from collections.abc import Sequence

from torch import Tensor

from engine_adapters.runner.model.step import Segment, StateSink


class SharedSink:
    """As ``StateSink``; each request has a saver of its own. The engine's thread only.

    Requests announce themselves to their savers (``Conversing``), so ``begin_request`` is never
    called.
    """

    def __init__(self) -> None:
        self._savers: dict[int, StateSink] = {}
        self._active: list[StateSink] = []

    @property
    def request_count(self) -> int:
        """Requests that it knows."""
        return len(self._savers)

    def assign(self, request_id: int, saver: StateSink) -> None:
        """Who saves a request."""
        self._savers[request_id] = saver

    def forget(self, request_id: int) -> None:
        """The request is over."""
        self._savers.pop(request_id, None)

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Never called."""
        del token_ids, stored_tokens
        raise RuntimeError(f"request {request_id} has no namespace that could save it")

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """As ``StateSink``; savers ignore what was not announced to them."""
        found = (self._savers.get(segment.request_id) for segment in segments)
        # Each once, in order.
        self._active = list(dict.fromkeys(saver for saver in found if saver is not None))
        for saver in self._active:
            saver.begin_step(segments)

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """As ``StateSink``."""
        for saver in self._active:
            saver.take(layer, hidden, keys, values)

    def end_step(self) -> None:
        """As ``StateSink``."""
        active, self._active = self._active, []
        for saver in active:
            saver.end_step()

    def abandon_step(self) -> None:
        """As ``StateSink``."""
        active, self._active = self._active, []
        for saver in active:
            saver.abandon_step()

    def end_request(self, request_id: int) -> None:
        """As ``StateSink``."""
        self._savers[request_id].end_request(request_id)
