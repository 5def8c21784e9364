"""A read in flight, for tasks of an event loop."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from kvstored_client.aio.transport import AioSignal, uninterrupted
from kvstored_client.values import ReadReport
from kvstored_client.verbs.progress import ReadBase, ReadProgress
from kvstored_contract.board import Watch


class AsyncRead(ReadBase):
    """A read that the daemon works on; as ``Read``, with awaitable waits.

    Belongs to one event loop. Close it (or use it as an async context manager) before
    the destination is used for anything else.
    """

    __slots__ = ("_signal",)

    def __init__(self, progress: ReadProgress, signal: AioSignal | None) -> None:
        super().__init__(progress)
        self._signal = signal

    async def wait(self, timeout_s: float | None = None) -> ReadReport:
        """Waits until the read is finished or ``timeout_s`` has passed; the report tells which."""
        await self._wait(Watch.END, self._progress.is_finished, timeout_s)
        return self._progress.report()

    async def wait_for(
        self, chunk: int, layer: int | None = None, timeout_s: float | None = None
    ) -> bool:
        """Waits until the slice (or the chunk) is settled; True when it is resident."""
        await self._wait(
            Watch.PROGRESS, lambda: self._progress.is_chunk_settled(chunk, layer), timeout_s
        )
        return self._progress.is_resident(chunk, layer)

    async def wait_layer(self, layer: int, timeout_s: float | None = None) -> bool:
        """Waits until the layer of every chunk is settled; True when all are resident."""
        await self._wait(Watch.PROGRESS, lambda: self._progress.is_layer_settled(layer), timeout_s)
        return self._progress.is_layer_resident(layer)

    async def close(self) -> None:
        """Cancels what is not read yet, waits for the daemon to let go, frees the board.

        A cancelled task waits too: afterwards the destination is the engine's again. Where the
        wait itself is cancelled, as at the end of the loop, the session ends.
        """
        try:
            if not self._progress.is_finished():
                self._progress.board.cancel()
                await uninterrupted(self._wait(Watch.END, self._progress.is_finished, None))
        except BaseException:
            self._progress.board.end_session()
            raise
        finally:
            self._progress.board.settle()

    async def _wait(
        self, watch: Watch, settled: Callable[[], bool], timeout_s: float | None
    ) -> None:
        if settled() or self._signal is None:
            return
        self._progress.board.watch(watch)
        if not await self._signal.wait(settled, self._progress.deadline(timeout_s)):
            self._progress.give_up_when_overdue()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
