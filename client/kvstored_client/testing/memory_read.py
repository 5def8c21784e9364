"""Reads of a client in the same process: the store hears what the engine does at once."""

from collections.abc import Callable

from kvstored_client.aio.read import AsyncRead
from kvstored_client.aio.transport import AioSignal
from kvstored_client.testing.served_read import ServedRead, Wait
from kvstored_client.threads.read import Read
from kvstored_client.threads.transport import Signal
from kvstored_client.values import ReadReport
from kvstored_client.verbs.progress import ReadProgress
from kvstored_contract.board import Watch


class MemoryRead(Read):
    """A ``Read`` of which the store hears each word on the board, and each wait."""

    __slots__ = ("_served",)

    def __init__(self, progress: ReadProgress, signal: Signal, served: ServedRead) -> None:
        super().__init__(progress, signal)
        self._served = served

    def advance(self, pointer: int) -> None:
        """As of every read."""
        super().advance(pointer)
        self._served.look()

    def cancel(self) -> None:
        """As of every read."""
        super().cancel()
        self._served.look()

    def wait(self, timeout_s: float | None = None) -> ReadReport:
        """As of every read."""
        if not self._progress.is_finished():
            timeout_s = self._announced(None, None, timeout_s)
        return super().wait(timeout_s)

    def wait_for(
        self, chunk: int, layer: int | None = None, timeout_s: float | None = None
    ) -> bool:
        """As of every read."""
        if not self._progress.is_chunk_settled(chunk, layer):
            timeout_s = self._announced(chunk, layer, timeout_s)
        return super().wait_for(chunk, layer, timeout_s)

    def wait_layer(self, layer: int, timeout_s: float | None = None) -> bool:
        """As of every read."""
        if not self._progress.is_layer_settled(layer):
            timeout_s = self._announced(None, layer, timeout_s)
        return super().wait_layer(layer, timeout_s)

    def close(self) -> None:
        """As of every read."""
        if not self._progress.is_finished():
            self.cancel()
            self._served.wait_for_end()
        super().close()

    def _announced(
        self, chunk: int | None, layer: int | None, timeout_s: float | None
    ) -> float | None:
        """Tells the store of a wait; how long it may take."""
        wait = Wait(read=self._served, chunk=chunk, layer=layer, timeout_s=timeout_s)
        return 0.0 if self._served.wait(wait) else timeout_s

    def _wait(self, watch: Watch, settled: Callable[[], bool], timeout_s: float | None) -> None:
        late_s = max(0.0, self._served.remaining_s)
        if timeout_s is None or timeout_s > late_s:
            super()._wait(watch, settled, late_s)
            self._served.look()
        super()._wait(watch, settled, timeout_s)


class AsyncMemoryRead(AsyncRead):
    """As ``MemoryRead``, for tasks of an event loop."""

    __slots__ = ("_served",)

    def __init__(self, progress: ReadProgress, signal: AioSignal, served: ServedRead) -> None:
        super().__init__(progress, signal)
        self._served = served

    def advance(self, pointer: int) -> None:
        """As of every read."""
        super().advance(pointer)
        self._served.look()

    def cancel(self) -> None:
        """As of every read."""
        super().cancel()
        self._served.look()

    async def wait(self, timeout_s: float | None = None) -> ReadReport:
        """As of every read."""
        if not self._progress.is_finished():
            timeout_s = self._announced(None, None, timeout_s)
        return await super().wait(timeout_s)

    async def wait_for(
        self, chunk: int, layer: int | None = None, timeout_s: float | None = None
    ) -> bool:
        """As of every read."""
        if not self._progress.is_chunk_settled(chunk, layer):
            timeout_s = self._announced(chunk, layer, timeout_s)
        return await super().wait_for(chunk, layer, timeout_s)

    async def wait_layer(self, layer: int, timeout_s: float | None = None) -> bool:
        """As of every read."""
        if not self._progress.is_layer_settled(layer):
            timeout_s = self._announced(None, layer, timeout_s)
        return await super().wait_layer(layer, timeout_s)

    async def close(self) -> None:
        """As of every read."""
        if not self._progress.is_finished():
            self.cancel()
            self._served.wait_for_end()
        await super().close()

    def _announced(
        self, chunk: int | None, layer: int | None, timeout_s: float | None
    ) -> float | None:
        wait = Wait(read=self._served, chunk=chunk, layer=layer, timeout_s=timeout_s)
        return 0.0 if self._served.wait(wait) else timeout_s

    async def _wait(
        self, watch: Watch, settled: Callable[[], bool], timeout_s: float | None
    ) -> None:
        late_s = max(0.0, self._served.remaining_s)
        if timeout_s is None or timeout_s > late_s:
            await super()._wait(watch, settled, late_s)
            self._served.look()
        await super()._wait(watch, settled, timeout_s)
