"""Work that another thread wants done between two forwards."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

POLL_S = 0.05


class BetweenForwards:
    """Runs what others hand over when the engine's thread has time for it. Thread-safe."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], bool], Future[bool]]] = (
            queue.SimpleQueue()
        )
        self._is_closed = threading.Event()

    def run(self, task: Callable[[], bool]) -> bool:
        """Waits until the engine's thread has run ``task``; its answer, False at the end.

        Raises what the task raises.
        """
        done: Future[bool] = Future()
        self._tasks.put((task, done))
        while not self._is_closed.is_set():
            try:
                return done.result(timeout=POLL_S)
            except TimeoutError:
                # Either the task has raised that, or it has ended since.
                if done.done():
                    return done.result()
        return False

    def serve(self) -> None:
        """On the engine's thread: runs what is waiting."""
        while not self._is_closed.is_set():
            try:
                task, done = self._tasks.get_nowait()
            except queue.Empty:
                return
            try:
                done.set_result(task())
            except Exception as error:
                done.set_exception(error)

    def close(self) -> None:
        """All that wait get False."""
        self._is_closed.set()
