"""Products that are broken on purpose, to see that the lab notices.

The workload runs with one of these in its own process; recovery is the real one.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from unittest.mock import patch

import lmdb

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.identity import ChunkId
from kvstored.store.chunk_store import ChunkStore
from kvstored.store.committer import Commit, Committer
from kvstored_contract.reasons import Reason

SLOW_COMMIT_S = 0.01


class Breakage(StrEnum):
    """What is wrong with the product."""

    NO_FLUSH = "no-flush"
    """The devices are not flushed before the index is committed."""
    INDEX_FIRST = "index-first"
    """The index is committed before the devices are flushed."""
    EARLY_REUSE = "early-reuse"
    """Extents are free again before the deletion of their chunks is committed."""
    INDEX_UNSYNCED = "index-unsynced"
    """LMDB does not sync its commits."""


def break_product(breakage: Breakage) -> None:
    """Breaks the product in this process, for good."""
    _BREAK[breakage]()


def _no_flush() -> None:
    patch.object(Committer, "_flush", lambda *_: frozenset()).start()


def _index_first() -> None:
    def commit(self: Committer, group: list[Commit]) -> None:
        outcome = self._apply(group)
        self._flush(frozenset().union(*(commit.device_indices for commit in group)))
        for member in group:
            member.done(outcome)

    patch.object(Committer, "_commit", commit).start()


def _early_reuse() -> None:
    delete_visible, apply = ChunkStore._delete_visible, Committer._apply

    def slow(self: Committer, group: list[Commit]) -> Reason:
        # Sound, but it leaves others the time to use what is free too early.
        time.sleep(SLOW_COMMIT_S)
        return apply(self, group)

    def freed_early(self: ChunkStore, chunk: ChunkId, outcome: Future[bool]) -> None:
        record = self.index.get(chunk)
        if record is not None:
            self.free_unwritten(record.extent)
        delete_visible(self, chunk, outcome)

    def not_freed(
        self: ChunkStore, chunk: ChunkId, _: ChunkRecord, reason: Reason, outcome: Future[bool]
    ) -> None:
        self._on_removed(chunk)
        with self._lock:
            del self._deleting[chunk]
        outcome.set_result(reason is Reason.UNSPECIFIED)

    patch.object(Committer, "_apply", slow).start()
    patch.object(ChunkStore, "_delete_visible", freed_early).start()
    patch.object(ChunkStore, "_deleted", not_freed).start()


def _index_unsynced() -> None:
    patch.object(lmdb, "Environment", partial(lmdb.Environment, sync=False)).start()


_BREAK: dict[Breakage, Callable[[], None]] = {
    Breakage.NO_FLUSH: _no_flush,
    Breakage.INDEX_FIRST: _index_first,
    Breakage.EARLY_REUSE: _early_reuse,
    Breakage.INDEX_UNSYNCED: _index_unsynced,
}
