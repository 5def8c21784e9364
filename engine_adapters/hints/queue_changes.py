"""Which change of an engine's queue the store hears of next."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from kvstored_client import HintReport, QueueEntry
from kvstored_contract.limits import (
    CHUNKS_PER_CALL_MAX,
    HINTED_CHUNKS_PER_SESSION_MAX,
    WAITING_PER_SESSION_MAX,
)

_SPARE_ENTRIES = 64
"""The heap may have so many entries more than twice the names that wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUpdate:
    """One call: who entered and who left, from one version of the queue to the next."""

    entered: Sequence[QueueEntry]
    left: Sequence[str]
    version: int
    previous_version: int


class QueueChanges:
    """Collects changes until the store hears of them, as far as one call and one queue may go.

    The owner serialises the calls. A change costs logarithmic time. Those beyond the limits of a
    queue follow when others have left; of one request only the first chunks are, as many as a
    call may name. After a failure the next update is the whole queue.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, QueueEntry] = {}
        self._told: dict[str, int] = {}
        """Chunks of those whom the daemon has heard of."""
        self._told_chunks = 0
        self._untold: list[tuple[int, str]] = []
        """A heap; names that wait no more, or at another place, are passed by."""
        self._left: dict[str, None] = {}
        self._version = 0
        self._known_version = 0
        self._is_doubtful = False
        """Whether nobody knows what the daemon takes for the queue."""

    def enter(self, entry: QueueEntry) -> None:
        """Somebody waits, or waits at another place or for other chunks."""
        self._forget(entry.name)
        self._waiting[entry.name] = entry
        heapq.heappush(self._untold, (entry.place, entry.name))
        if len(self._untold) > 2 * len(self._waiting) + _SPARE_ENTRIES:
            self._queue_all()

    def leave(self, name: str) -> bool:
        """Somebody waits no more; False if he did not. Who was never told of is not mentioned."""
        if self._waiting.pop(name, None) is None:
            return False
        self._forget(name)
        return True

    def take(self) -> QueueUpdate | None:
        """The next call; None when the daemon has heard of everything that it can hear of."""
        entered = self._next_entries()
        if not (entered or self._left or self._is_doubtful):
            return None
        left = list(self._left)[:WAITING_PER_SESSION_MAX]
        for name in left:
            del self._left[name]
        self._version += 1
        return QueueUpdate(
            entered=entered,
            left=left if self._known_version else (),
            version=self._version,
            previous_version=self._known_version,
        )

    def end(self, update: QueueUpdate, report: HintReport | None) -> bool:
        """What came of a call; False where the whole queue has to go again from the start."""
        if report is not None and report.is_taken:
            self._known_version = update.version
            self._is_doubtful = False
            return True
        self._known_version = 0
        self._is_doubtful = True
        self._version = max(self._version, 0 if report is None else report.version)
        self._told.clear()
        self._left.clear()
        self._told_chunks = 0
        self._queue_all()
        return False

    def _queue_all(self) -> None:
        self._untold = [
            (entry.place, name) for name, entry in self._waiting.items() if name not in self._told
        ]
        heapq.heapify(self._untold)

    def _forget(self, name: str) -> None:
        chunk_count = self._told.pop(name, None)
        if chunk_count is not None:
            self._told_chunks -= chunk_count
            self._left[name] = None

    def _next_entries(self) -> list[QueueEntry]:
        entries: list[QueueEntry] = []
        call_chunks = 0
        while self._untold and len(self._told) < WAITING_PER_SESSION_MAX:
            place, name = self._untold[0]
            entry = self._waiting.get(name)
            if entry is not None and entry.place == place and name not in self._told:
                chunk_count = len(entry.keys)
                if (
                    call_chunks + chunk_count > CHUNKS_PER_CALL_MAX
                    or self._told_chunks + chunk_count > HINTED_CHUNKS_PER_SESSION_MAX
                ):
                    break
                call_chunks += chunk_count
                self._told_chunks += chunk_count
                self._told[name] = chunk_count
                entries.append(entry)
            heapq.heappop(self._untold)
        return entries
