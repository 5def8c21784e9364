"""What a client sees of its read: the board, when it is woken, and when the read is over."""

import threading
import time

from kvstored.store.read.plan import LayerRun
from kvstored.store.read.read_task import ReadTask
from kvstored_contract.board import BoardWord, SliceState, Watch

NOTIFY_INTERVAL_S = 0.001
"""Progress wakes a client that watches it at most so often."""


class ReadProgress:
    """Publishes one read of ``run_count`` runs; nothing else writes on its board. Thread-safe."""

    def __init__(self, task: ReadTask, run_count: int) -> None:
        self.device_bytes = 0
        self.dram_bytes = 0
        self._task = task
        self._remaining = run_count
        self._notified_at = 0.0
        self._lock = threading.Lock()
        self._finished = threading.Event()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until every run is settled; True when that is so."""
        return self._finished.wait(timeout_s)

    def begin(self) -> bool:
        """Settles the chunks that are not stored; True when there are no runs: the read is over."""
        for chunk, source in enumerate(self._task.sources):
            if source is None:
                self._task.target.board.states[chunk, :] = SliceState.MISSING
        return self._retire(0)

    def transferred(self, run: LayerRun) -> None:
        """Counts the bytes of a run that a device has read."""
        with self._lock:
            self.device_bytes += run.byte_count
            self._task.target.board.words[BoardWord.DEVICE_BYTES] = self.device_bytes

    def copied(self, run: LayerRun) -> None:
        """Counts the bytes of a run that was copied from DRAM."""
        with self._lock:
            self.dram_bytes += run.byte_count
            self._task.target.board.words[BoardWord.DRAM_BYTES] = self.dram_bytes

    def settle(self, run: LayerRun, state: SliceState) -> bool:
        """Publishes the final state of a run's slices, once for each; True when it is the last."""
        if run.layer_count:
            board, layers = self._task.target.board, self._task.layers(run)
            if board.lengths is not None and state is SliceState.RESIDENT:
                board.lengths[run.chunk, layers] = self._task.slice_bytes(run)
            board.states[run.chunk, layers] = state
        return self._retire(1)

    def _retire(self, run_count: int) -> bool:
        """Counts settled runs; the last one finishes the read, once.

        The client is woken for what it watches only, and for progress at most once in
        NOTIFY_INTERVAL_S: a wake-up costs more than the bookkeeping of a run.
        """
        words = self._task.target.board.words
        with self._lock:
            self._remaining -= run_count
            is_over = self._remaining == 0 and not self._finished.is_set()
            if is_over:
                words[BoardWord.FINISHED] = 1
                self._finished.set()
            # Looked at after the board was written: a client that watches looks at the board
            # after it has said so, and so one of both sees the other.
            watch = words.item(BoardWord.WATCHED)
            wakes = watch >= Watch.END if is_over else self._is_notice_due(watch)
        if wakes:
            self._task.target.notify()
        return is_over

    def _is_notice_due(self, watch: int) -> bool:
        if watch < Watch.PROGRESS:
            return False
        now = time.monotonic()
        if now - self._notified_at <= NOTIFY_INTERVAL_S:
            return False
        self._notified_at = now
        return True
