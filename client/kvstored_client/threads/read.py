"""A read in flight, for threads."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from kvstored_client.threads.transport import Signal
from kvstored_client.values import ReadReport
from kvstored_client.verbs.progress import ReadBase, ReadProgress
from kvstored_contract.board import Watch


class Read(ReadBase):
    """A read that the daemon works on. Every method may be called from any thread.

    Close it (or use it as a context manager) before the destination is used for anything
    else: the daemon may write there until the read is finished. ``chunk`` and ``layer``
    count from the read's first chunk and first layer; outside the read is IndexError.
    When the daemon dies, every pending slice is MISSING and every wait returns.
    """

    __slots__ = ("_signal",)

    def __init__(self, progress: ReadProgress, signal: Signal | None) -> None:
        super().__init__(progress)
        self._signal = signal

    def wait(self, timeout_s: float | None = None) -> ReadReport:
        """Blocks until the read is finished or ``timeout_s`` has passed; the report tells which."""
        self._wait(Watch.END, self._progress.is_finished, timeout_s)
        return self._progress.report()

    def wait_for(
        self, chunk: int, layer: int | None = None, timeout_s: float | None = None
    ) -> bool:
        """Blocks until the slice (or the chunk) is settled; True when it is resident."""
        self._wait(Watch.PROGRESS, lambda: self._progress.is_chunk_settled(chunk, layer), timeout_s)
        return self._progress.is_resident(chunk, layer)

    def wait_layer(self, layer: int, timeout_s: float | None = None) -> bool:
        """Blocks until the layer of every chunk is settled; True when all are resident."""
        self._wait(Watch.PROGRESS, lambda: self._progress.is_layer_settled(layer), timeout_s)
        return self._progress.is_layer_resident(layer)

    def close(self) -> None:
        """Cancels what is not read yet, waits for the daemon to let go, frees the board.

        The outcome stays readable. A second call does nothing. An interrupt of the wait ends the
        session, so that the daemon writes to no memory that the engine uses again.
        """
        try:
            if not self._progress.is_finished():
                self._progress.board.cancel()
                self._wait(Watch.END, self._progress.is_finished, None)
        except BaseException:
            self._progress.board.end_session()
            raise
        finally:
            self._progress.board.settle()

    def _wait(self, watch: Watch, settled: Callable[[], bool], timeout_s: float | None) -> None:
        if settled() or self._signal is None:
            return
        self._progress.board.watch(watch)
        if not self._signal.wait(settled, self._progress.deadline(timeout_s)):
            self._progress.give_up_when_overdue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
