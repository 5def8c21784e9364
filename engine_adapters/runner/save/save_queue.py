"""What the engine's thread hands over to be saved, and the thread that does it in order."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from engine_adapters.layout_check import LayoutCheck
from engine_adapters.runner.save.snapshot import Snapshot
from kvstored_client import Client, StateLayout
from kvstored_contract.keys import Cut, history_keys

LOGGER = logging.getLogger("kvstored.runner")
THREAD_NAME = "save-queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """Tokens since the start: saved in complete chunks, and lost on the way.

    Saved ones are durable, but for ``late_tokens`` of them, which the store had staged and its
    devices not yet written when their sequence ended. Of a sequence that ends, those behind its
    last complete chunk are in neither.
    """

    saved_tokens: int = 0
    dropped_tokens: int = 0
    late_tokens: int = 0


@dataclass(slots=True, eq=False)
class SavedSequence:
    """A stretch of a request that is being saved, from ``first_token`` on, a chunk's first.

    ``token_ids`` is the engine's own list, which grows while it decodes. ``length_tokens``
    is how far the queue has taken it, ``next_token`` how far rows were handed over. Once it is
    stopped nothing more is saved of it, and it stays so; that is the queue's word, while the
    engine's thread says that it is cut: no more rows of it are handed over, but those that were
    are saved.

    One that ``is_kept`` is the conversation of its name: it outlives the request and has ``cuts``
    (live as well), its tail is flushed in the end, and it may begin inside a chunk, where the
    store's sequence ends. With a codec there is no tail to flush.

    One that ``keeps_tail`` besides is of a request alone: its last tokens are stored as a short
    chunk, with a codec too, and the store's sequence ends with the request, or with the session.
    """

    name: str
    token_ids: Sequence[int]
    first_token: int
    length_tokens: int = field(init=False)
    next_token: int = field(init=False)
    is_stopped: bool = False
    is_cut: bool = False
    is_kept: bool = False
    is_open: bool = False
    """Whether the store's sequence of this name is this one; the queue's word."""
    keeps_tail: bool = False
    cuts: Sequence[Cut] = ()
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


class SaveQueue(ABC):
    """What the engine's thread hands over is done in order by one thread.

    No method but ``finish`` and ``close`` waits for the store.
    A sequence that loses rows is stopped: what follows could never be matched.
    """

    def __init__(self, client: Client, layout: StateLayout) -> None:
        self._client = client
        self._layout = layout
        self._check = LayoutCheck(client, [layout], LOGGER)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=THREAD_NAME)
        self._lock = threading.Lock()
        self._saved_tokens = 0
        self._dropped_tokens = 0
        self._late_tokens = 0
        self._is_connecting = False

    def open(self, sequence: SavedSequence) -> None:
        """Begins a sequence behind the chunks that are stored of it."""
        self._submit(lambda: self._begin(sequence))

    def append(self, snapshot: Snapshot, rows: Sequence[Rows]) -> None:
        """Adds the rows of one step; releases the snapshot's region."""
        self._submit(lambda: self._append(snapshot, rows))

    def close_sequence(self, sequence: SavedSequence) -> None:
        """Ends a sequence: its complete chunks become durable, its open tail is forgotten."""
        self._submit(lambda: self._close_sequence(sequence))

    def check_layout(self) -> None:
        """Has the daemon say whether it takes the layout, before anything is computed for it."""
        self._submit(self._check.is_refused)

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

        Every call has a deadline, so this ends. A fault of this queue itself is logged; what it
        was about is dropped, and nothing else.
        """
        self._executor.submit(lambda: None).result()
        with self._lock:
            return SaveReport(
                saved_tokens=self._saved_tokens,
                dropped_tokens=self._dropped_tokens,
                late_tokens=self._late_tokens,
            )

    def close(self) -> None:
        """Finishes and ends the thread."""
        try:
            self.finish()
        finally:
            self._executor.shutdown(wait=True)

    @abstractmethod
    def _open(self, sequence: SavedSequence) -> None:
        """``open``, on the thread, as the next two."""

    @abstractmethod
    def _append(self, snapshot: Snapshot, rows: Sequence[Rows]) -> None: ...

    @abstractmethod
    def _close_sequence(self, sequence: SavedSequence) -> None: ...

    def _count_saved(self, token_count: int, *, late_tokens: int = 0) -> None:
        with self._lock:
            self._saved_tokens += token_count
            self._late_tokens += late_tokens

    def _begin(self, sequence: SavedSequence) -> None:
        try:
            if self._check.is_refused():
                sequence.is_stopped = True
            else:
                self._open(sequence)
        except BaseException:
            # The store's sequence of this name may be another one.
            sequence.is_stopped = True
            raise

    def _submit(self, task: Callable[[], object]) -> None:
        def run() -> None:
            try:
                task()
            except Exception:
                LOGGER.exception("states could not be saved; a later turn computes them again")

        self._executor.submit(run)

    def _connect(self) -> None:
        try:
            self._client.available()
        finally:
            self._is_connecting = False

    def _keys(self, sequence: SavedSequence, stop_token: int) -> list[bytes]:
        """Keys of the complete chunks before ``stop_token``; too few while no daemon is known."""
        keys, chunk_tokens = sequence.keys, self._layout.chunk_tokens
        wanted = min(stop_token, len(sequence.token_ids)) // chunk_tokens
        if len(keys) < wanted:
            # Each key hashes the one before it: those that are known are not hashed again.
            parent = keys[-1] if keys else b""
            first = len(keys) * chunk_tokens
            if sequence.is_kept:
                keys += self._kept_keys(sequence, first, wanted * chunk_tokens, parent)
            else:
                new_tokens = sequence.token_ids[first:]
                keys += self._client.prefix_keys(self._layout, new_tokens, parent=parent)
        return keys[:wanted]

    def _tail_key(self, sequence: SavedSequence, stop_token: int) -> bytes:
        """Key of the tokens before ``stop_token`` that complete no chunk; empty without any."""
        whole = stop_token - stop_token % self._layout.chunk_tokens
        keys = self._keys(sequence, whole)
        parent = keys[-1] if keys else b""
        found = self._kept_keys(sequence, whole, stop_token, parent)
        return found[0] if found else b""

    def _kept_keys(
        self, sequence: SavedSequence, first: int, stop: int, parent: bytes
    ) -> list[bytes]:
        """Keys from a chunk's ``first`` token on; no later ones: a cut may come before them."""
        if not self._client.namespace:
            return []
        return history_keys(
            namespace=self._client.namespace,
            layout=self._layout,
            token_ids=sequence.token_ids[first:stop],
            cuts=tuple(sequence.cuts),
            parent=parent,
            first_token=first,
        )
