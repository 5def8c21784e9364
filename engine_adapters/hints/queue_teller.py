"""Tells the store of an engine's queue, on a thread of its own."""

import logging
import threading
from dataclasses import replace

from engine_adapters.hints.queue_changes import QueueChanges
from kvstored_client import Client, QueueEntry
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX

LOGGER = logging.getLogger(__name__)

CLOSE_S = 1.0
"""How long an engine that ends waits for a call that is on its way."""
SETTLE_S = 0.02
"""The store hardly ever hears of those who wait for less: it would fetch what is asked for by then,
and its devices would read it twice."""


class QueueTeller:
    """Makes one call for all changes since the last one; none while nothing changes.

    The store hears of somebody who entered after ``SETTLE_S`` at the latest, and hardly ever if he
    has left by then; of somebody who left it hears at once. ``enter`` and ``leave`` return at once,
    whatever the daemon does. Of one that does not answer, or has lost the queue, the next change
    tells the whole queue. Thread-safe; raises nothing.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changes = QueueChanges()
        self._lock = threading.Lock()
        self._has_changed = threading.Event()
        self._is_urgent = threading.Event()
        """Whether somebody has left, or all ends."""
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def enter(self, entry: QueueEntry) -> None:
        """Somebody waits, or waits at another place; of too many chunks the first ones count."""
        if len(entry.keys) > CHUNKS_PER_CALL_MAX:
            entry = replace(entry, keys=entry.keys[:CHUNKS_PER_CALL_MAX])
        with self._lock:
            if self._is_closing:
                return
            self._changes.enter(entry)
            if self._thread is None:
                self._thread = self._started()
        self._has_changed.set()

    def leave(self, name: str) -> None:
        """Somebody waits no more."""
        with self._lock:
            was_waiting = self._changes.leave(name)
        if was_waiting:
            self._is_urgent.set()
            self._has_changed.set()

    def close(self) -> None:
        """Tells nothing any more; the queue ends with the client's session."""
        with self._lock:
            self._is_closing = True
            thread = self._thread
        self._is_urgent.set()
        self._has_changed.set()
        if thread is not None:
            thread.join(CLOSE_S)

    def _started(self) -> threading.Thread | None:
        """The thread; None where the process gets no further one: the next change tries again."""
        thread = threading.Thread(target=self._run, name="kvstored-queue", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            LOGGER.warning("the store does not hear of waiting requests", exc_info=True)
            return None
        return thread

    def _run(self) -> None:
        while True:
            self._has_changed.wait()
            self._is_urgent.wait(SETTLE_S)
            self._is_urgent.clear()
            self._has_changed.clear()
            # A change that did not get there goes once more, with the whole queue.
            if not self._tell_all():
                self._tell_all()
            if self._is_closing:
                return

    def _tell_all(self) -> bool:
        """Calls until the daemon knows everything; False where it lacks a change, or is away."""
        while not self._is_closing:
            with self._lock:
                update = self._changes.take()
            if update is None:
                return True
            try:
                report = self._client.sequences.hint(
                    update.entered,
                    update.left,
                    version=update.version,
                    previous_version=update.previous_version,
                )
            except Exception:
                LOGGER.warning("the store did not hear of waiting requests", exc_info=True)
                report = None
            with self._lock:
                is_told = self._changes.end(update, report)
            if not is_told:
                # No answer is a miss; a daemon that answered wants the whole queue.
                return report is None
        return True
