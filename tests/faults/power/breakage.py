"""Products that are broken on purpose, to see that the lab notices.

The workload runs with one of these in its own process; recovery is the real one.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any
from unittest.mock import patch

import lmdb

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.identity import ChunkId
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.store.write.committer import Commit, Committer
from kvstored.tiers.chunks.requests import PutTicket
from kvstored.tiers.chunks.stager import already_durable
from kvstored.tiers.sequences.open_sequence import OpenSequence
from kvstored.tiers.sequences.open_sequences import OpenSequences
from kvstored.tiers.sequences.sequence_recorder import SequenceRecorder, Settled
from kvstored.tiers.sequences.tail_frames import TailFrames
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
    FLUSH_UNRECORDED = "flush-unrecorded"
    """A flush is acknowledged before the record that names its tail is stored."""
    TAIL_UNAWAITED = "tail-unawaited"
    """The record names a flushed tail that is still on its way to its device."""
    CHUNK_UNWATCHED = "chunk-unwatched"
    """A record names complete chunks that are still on their way."""


def break_product(breakage: Breakage) -> None:
    """Breaks the product in this process, for good."""
    _BREAK[breakage]()


def _no_flush() -> None:
    patch.object(Committer, "_flush", lambda *_: frozenset()).start()


def _index_first() -> None:
    def commit(self: Committer, group: list[Commit]) -> None:
        outcomes = self._apply(group)
        self._flush(frozenset().union(*(commit.device_indices for commit in group)))
        for member, outcome in zip(group, outcomes, strict=True):
            member.done(outcome)

    patch.object(Committer, "_commit", commit).start()


def _early_reuse() -> None:
    delete_visible, apply = ChunkStore._delete_visible, Committer._apply

    def slow(self: Committer, group: list[Commit]) -> list[Reason]:
        # Sound, but it leaves others the time to use what is free too early.
        time.sleep(SLOW_COMMIT_S)
        return apply(self, group)

    def freed_early(self: ChunkStore, chunk: ChunkId, outcome: Future[bool]) -> None:
        record = self.index.get(chunk)
        if record is not None:
            self.extents.free(record.extent)
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


def _flush_unrecorded() -> None:
    store = OpenSequences.store

    def unrecorded(self: OpenSequences, sequence: OpenSequence, state: SequenceState) -> None:
        if state.flushed is not None and state.flushed != sequence.known.flushed:
            sequence.state = state
        else:
            store(self, sequence, state)

    patch.object(OpenSequences, "store", unrecorded).start()


def _tail_unawaited() -> None:
    flush = TailFrames.flush

    def unawaited(self: TailFrames, *arguments: Any, deadline: float) -> PutTicket:
        ticket = flush(self, *arguments, deadline=deadline)
        return replace(ticket, durable=already_durable())

    _commit_one_by_one()
    patch.object(TailFrames, "flush", unawaited).start()


def _chunk_unwatched() -> None:
    def unwatched(
        self: SequenceRecorder, sequence: OpenSequence, key: bytes, durable: Future[Reason]
    ) -> None:
        self._queue.put(Settled(sequence.identity, key, durable))

    _commit_one_by_one()
    patch.object(SequenceRecorder, "watch", unwatched).start()


def _commit_one_by_one() -> None:
    """Sound, but a record is not in one commit with the chunks that are in flight."""
    patch.object(Committer, "_collect", lambda _, first: [first]).start()


_BREAK: dict[Breakage, Callable[[], None]] = {
    Breakage.NO_FLUSH: _no_flush,
    Breakage.INDEX_FIRST: _index_first,
    Breakage.EARLY_REUSE: _early_reuse,
    Breakage.INDEX_UNSYNCED: _index_unsynced,
    Breakage.FLUSH_UNRECORDED: _flush_unrecorded,
    Breakage.TAIL_UNAWAITED: _tail_unawaited,
    Breakage.CHUNK_UNWATCHED: _chunk_unwatched,
}
