"""Puts complete chunks from a background thread, so that no step waits for the store."""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from kvstored_client import Ack, Client, NewChunk, Placement, PutOutcome, Region, StateLayout

CHUNKS_PER_PUT_MAX = 256
"""Chunks of one put: their regions are free again when it is answered."""


@dataclass(slots=True, eq=False)
class Chain:
    """The chunks of one sequence as far as they are on their way to the store.

    ``lost_index`` is the first chunk that was lost, and only ever becomes smaller. A chunk
    behind it could never be matched, so it is not put either.
    """

    lost_index: int | None = None

    @property
    def is_broken(self) -> bool:
        """Whether a chunk was lost; then no later one needs to be filled."""
        return self.lost_index is not None

    def is_behind_loss(self, chunk_index: int) -> bool:
        """Whether the chunk has a lost one before it."""
        return self.lost_index is not None and self.lost_index < chunk_index


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilledChunk:
    """A complete chunk in a region of the arena that the writer takes over."""

    chain: Chain
    chunk: NewChunk
    chunk_index: int
    region: Region


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """Chunks since the start: made durable, found stored already, and lost on the way.

    What a sequence computes behind its first lost chunk is not counted.
    """

    stored_chunks: int = 0
    existed_chunks: int = 0
    dropped_chunks: int = 0


@dataclass(slots=True)
class _Tally:
    stored_chunks: int = 0
    existed_chunks: int = 0
    dropped_chunks: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class ChunkWriter:
    """One put at a time; everything that arrives meanwhile goes into the next one.

    ``submit`` and ``drop`` may be called from any thread and never wait for the store.
    """

    def __init__(self, client: Client, layout: StateLayout, *, put_timeout_ms: int) -> None:
        self._client = client
        self._layout = layout
        self._put_timeout_ms = put_timeout_ms
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="chunk-writer")
        self._queue: deque[FilledChunk] = deque()
        self._lock = threading.Lock()
        self._drain: Future[None] | None = None
        self._tally = _Tally()

    def submit(self, chunks: Sequence[FilledChunk]) -> None:
        """Queues chunks; they are put with the durable ack, in order."""
        if not chunks:
            return
        with self._lock:
            self._queue.extend(chunks)
            if self._drain is None or self._drain.done():
                self._drain = self._executor.submit(self._put_all)

    def drop(self, chain: Chain, chunk_index: int) -> None:
        """Breaks a chain at a chunk that cannot be saved, and counts that chunk."""
        with self._tally.lock:
            if not chain.is_behind_loss(chunk_index):
                chain.lost_index = chunk_index
            self._tally.dropped_chunks += 1

    def finish(self) -> SaveReport:
        """Waits until every queued chunk is durable or dropped.

        Every put has a deadline, so this ends; a fault of the writer itself is raised.
        """
        with self._lock:
            drain = self._drain
        if drain is not None:
            drain.result()
        with self._tally.lock:
            return SaveReport(
                stored_chunks=self._tally.stored_chunks,
                existed_chunks=self._tally.existed_chunks,
                dropped_chunks=self._tally.dropped_chunks,
            )

    def close(self) -> None:
        """Finishes the queue and ends the thread; later chunks cannot be submitted."""
        try:
            self.finish()
        finally:
            self._executor.shutdown(wait=True)

    def _put_all(self) -> None:
        while batch := self._take_batch():
            try:
                self._put(batch)
            finally:
                for filled in batch:
                    filled.region.release()

    def _take_batch(self) -> list[FilledChunk]:
        with self._lock:
            batch = list(islice(self._queue, CHUNKS_PER_PUT_MAX))
            for _ in batch:
                self._queue.popleft()
            if not batch:
                # Under the lock: a submit that comes now starts a drain of its own.
                self._drain = None
            return batch

    def _put(self, batch: Sequence[FilledChunk]) -> None:
        usable: list[FilledChunk] = []
        for filled in batch:
            # A region of a lost session names other bytes in the next one.
            is_behind_loss = filled.chain.is_behind_loss(filled.chunk_index)
            if is_behind_loss or not filled.region.is_current:
                self.drop(filled.chain, filled.chunk_index)
            else:
                usable.append(filled)
        if not usable:
            return
        report = self._client.put(
            self._layout,
            [filled.chunk for filled in usable],
            Placement(
                regions=tuple(filled.region for filled in usable),
                base=0,
                layer_stride=self._layout.layer_stride,
                block_offsets=tuple(filled.region.offset for filled in usable),
            ),
            ack=Ack.DURABLE,
            timeout_ms=self._put_timeout_ms,
        )
        for filled, result in zip(usable, report.results, strict=True):
            if result.outcome is PutOutcome.REJECTED:
                self.drop(filled.chain, filled.chunk_index)
        with self._tally.lock:
            self._tally.stored_chunks += report.stored_count
            self._tally.existed_chunks += report.existed_count
