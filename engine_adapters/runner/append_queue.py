"""Appends snapshots to sequences of the store from a background thread: one call a step."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from engine_adapters.runner.snapshot import Snapshot
from kvstored_client import AppendItem, Client, StateLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """Tokens since the start: durable in complete chunks, and lost on the way.

    Of a sequence that ends, those behind its last complete chunk are in neither.
    """

    saved_tokens: int = 0
    dropped_tokens: int = 0


@dataclass(slots=True, eq=False)
class SavedSequence:
    """A stretch of a request that is being saved, from ``first_token`` on, a chunk's first.

    ``token_ids`` is the engine's own list, which grows while it decodes. ``length_tokens``
    is how far the store holds it, ``next_token`` how far rows were handed over. Once it is
    stopped nothing more is saved of it; that is the queue's word, while the engine's thread
    says that it is cut: no more rows of it are handed over, but those that were are saved.
    """

    name: str
    token_ids: Sequence[int]
    first_token: int
    length_tokens: int = field(init=False)
    next_token: int = field(init=False)
    is_stopped: bool = False
    is_cut: bool = False
    keys: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.length_tokens = self.next_token = self.first_token


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows ``first_row`` on of a snapshot: consecutive tokens of one sequence."""

    sequence: SavedSequence
    first_token: int
    first_row: int
    token_count: int


class AppendQueue:
    """What the engine's thread hands over is done in order by one thread.

    No method but ``finish`` and ``close`` waits for the store.
    A sequence that loses rows is stopped: what follows could never be matched.
    """

    def __init__(self, client: Client, layout: StateLayout) -> None:
        self._client = client
        self._layout = layout
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="append-queue")
        self._lock = threading.Lock()
        self._saved_tokens = 0
        self._dropped_tokens = 0
        self._is_connecting = False
        self._failure: BaseException | None = None

    def open(self, sequence: SavedSequence) -> None:
        """Begins a sequence behind the chunks that are stored of it."""
        self._submit(lambda: self._open(sequence))

    def append(self, snapshot: Snapshot, rows: Sequence[Rows]) -> None:
        """Adds the rows of one step; releases the snapshot's region."""
        self._submit(lambda: self._append(snapshot, rows))

    def close_sequence(self, sequence: SavedSequence) -> None:
        """Ends a sequence: its complete chunks become durable, its open tail is forgotten."""
        self._submit(lambda: self._close_sequence(sequence))

    def connect(self) -> None:
        """Has a lost session connected again, unless that is being done."""
        if not self._is_connecting:
            self._is_connecting = True
            self._submit(self._connect)

    def count_dropped(self, token_count: int) -> None:
        """Counts tokens that are not saved."""
        with self._lock:
            self._dropped_tokens += token_count

    def finish(self) -> SaveReport:
        """Waits until everything handed over is done.

        Every call has a deadline, so this ends; a fault of this queue itself is raised.
        """
        self._executor.submit(lambda: None).result()
        if self._failure is not None:
            raise self._failure
        with self._lock:
            return SaveReport(saved_tokens=self._saved_tokens, dropped_tokens=self._dropped_tokens)

    def close(self) -> None:
        """Finishes and ends the thread."""
        try:
            self.finish()
        finally:
            self._executor.shutdown(wait=True)

    def _submit(self, task: Callable[[], None]) -> None:
        def run() -> None:
            try:
                task()
            except BaseException as error:
                self._failure = self._failure or error
                raise

        self._executor.submit(run)

    def _connect(self) -> None:
        self._client.available()
        self._is_connecting = False

    def _open(self, sequence: SavedSequence) -> None:
        keys = self._keys(sequence, sequence.first_token)
        created = None
        if len(keys) * self._layout.chunk_tokens == sequence.first_token:
            created = self._client.sequences.create(
                sequence.name, self._layout, keys=keys, ephemeral=True
            )
        if created is None:
            sequence.is_stopped = True

    def _append(self, snapshot: Snapshot, rows: Sequence[Rows]) -> None:
        try:
            snapshot.settle()
            items = {part: item for part in rows if (item := self._item(part)) is not None}
            report = self._client.append(
                self._layout, snapshot.region, snapshot.row_count, list(items.values())
            )
        finally:
            snapshot.region.release()
        for part, result in zip(items, report.results, strict=True):
            sequence = part.sequence
            if report.is_served:
                # Shorter than before when a chunk that was complete could not be stored.
                sequence.length_tokens = result.length_tokens
            if not result.is_taken:
                sequence.is_stopped = True
                taken = result.length_tokens - part.first_token if report.is_served else 0
                self.count_dropped(part.token_count - max(0, taken))
        for part in rows:
            if part not in items:
                part.sequence.is_stopped = True
                self.count_dropped(part.token_count)

    def _item(self, part: Rows) -> AppendItem | None:
        """None for a sequence that is stopped or that has no keys."""
        sequence, stop = part.sequence, part.first_token + part.token_count
        if sequence.is_stopped:
            return None
        chunk_tokens = self._layout.chunk_tokens
        keys = self._keys(sequence, stop)
        if len(keys) < stop // chunk_tokens:
            return None
        return AppendItem(
            sequence=sequence.name,
            first_token=part.first_token,
            first_row=part.first_row,
            token_count=part.token_count,
            keys=keys[part.first_token // chunk_tokens : stop // chunk_tokens],
        )

    def _keys(self, sequence: SavedSequence, stop_token: int) -> list[bytes]:
        """Keys of the complete chunks before ``stop_token``; too few while no daemon is known."""
        wanted = stop_token // self._layout.chunk_tokens
        if len(sequence.keys) < wanted:
            sequence.keys = self._client.prefix_keys(self._layout, sequence.token_ids)
        return sequence.keys[:wanted]

    def _close_sequence(self, sequence: SavedSequence) -> None:
        """Counts what is durable in the end."""
        sequences, chunk_tokens = self._client.sequences, self._layout.chunk_tokens
        tail_tokens = sequence.length_tokens % chunk_tokens
        whole_tokens = sequence.length_tokens - tail_tokens
        if tail_tokens:
            sequences.truncate_tokens(sequence.name, tail_tokens)
        if whole_tokens > sequence.first_token:
            flushed = sequences.flush(sequence.name, b"", expected_tokens=whole_tokens)
            durable_tokens = flushed.durable_tokens if flushed else sequence.first_token
            with self._lock:
                self._saved_tokens += durable_tokens - sequence.first_token
                self._dropped_tokens += whole_tokens - durable_tokens
        sequences.delete(sequence.name)
