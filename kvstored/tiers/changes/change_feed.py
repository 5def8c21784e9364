"""Tells of chunks that came and went, to each namespace its own.

There are two places that a chunk can be read from, and it is gone when both have lost it. So
code that takes a chunk away tells the feed *after* that, and the feed looks whether the other place
has it still: of two that take it away at once, the later one finds it nowhere. Code that stores a
chunk tells the feed *before* it can be read, and so before it can be taken away.
"""

import threading
from collections.abc import Callable

from kvstored.format.identity import ChunkId
from kvstored.tiers.changes.change_log import Change, ChangeKind, ChangeLog, ChangeSpan


class ChangeFeed:
    """One log for each namespace that somebody follows. Thread-safe; nothing here blocks.

    A namespace has a log from the first question on, so that nobody pays for changes that no
    one reads. There are as many as the configuration names at most. The lock is taken under
    those of the tiers, and no other is taken under it.
    """

    def __init__(self) -> None:
        self._logs: dict[bytes, ChangeLog] = {}
        self._lock = threading.Lock()

    def stored(self, chunk: ChunkId, note: bytes) -> None:
        """Hears that a chunk will be readable in a moment."""
        self._add(chunk, Change(ChangeKind.STORED, chunk.key, note))

    def left(self, chunk: ChunkId, is_elsewhere: Callable[[ChunkId], bool]) -> None:
        """Hears that one place does not have a chunk any more; asks whether the other one has.

        A chunk of a namespace that nobody follows is not asked for.
        """
        if chunk.namespace_id in self._logs and not is_elsewhere(chunk):
            self._add(chunk, Change(ChangeKind.REMOVED, chunk.key))

    def lose(self) -> None:
        """Hears that many chunks are gone at once: all who follow have to start over."""
        with self._lock:
            for log in self._logs.values():
                log.lose()

    def after(self, namespace_id: bytes, sequence: int | None) -> ChangeSpan:
        """What is known of a namespace's changes after ``sequence``; None: nothing is known."""
        with self._lock:
            log = self._logs.get(namespace_id)
            if log is None:
                log = self._logs[namespace_id] = ChangeLog()
            return log.after(sequence)

    def _add(self, chunk: ChunkId, change: Change) -> None:
        if chunk.namespace_id not in self._logs:
            return
        with self._lock:
            self._logs[chunk.namespace_id].add(change)
