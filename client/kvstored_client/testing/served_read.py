"""A read as a store in memory serves it: what of it arrives when."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from kvstored_client.testing.addresses import fragments
from kvstored_client.testing.memory_session import MemorySession
from kvstored_client.testing.stored_chunk import StoredChunk
from kvstored_client.values import Order
from kvstored_contract.board import Board, BoardWord, SliceState, Watch
from kvstored_contract.layout import StateLayout
from kvstored_protos.v1 import store_pb2

RUBBISH = 0x7F
"""Fills the destination of a slice that does not arrive: nobody may use what lies there."""


class Delivery(StrEnum):
    """When the slices of a read arrive."""

    AT_ONCE = "at_once"
    """Before the read is answered."""
    ON_WAIT = "on_wait"
    """When a ``MemoryClient`` of the store waits for them, on its thread."""
    PACED = "paced"
    """One after another, ``slice_delay_s`` apart, on a thread of their own."""
    HELD = "held"
    """When the test says so (``ServedRead.deliver``, ``MemoryStore.deliver``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What somebody waits for: a slice, a chunk, a layer of all chunks, or (both None) the end.

    ``timeout_s`` is how long at most, in seconds; None: until the read's deadline.
    """

    read: "ServedRead"
    chunk: int | None
    layer: int | None
    timeout_s: float | None

    def deliver(self) -> None:
        """Brings exactly what is waited for."""
        self.read.deliver(self.chunk, self.layer)


@dataclass(slots=True, kw_only=True)
class ReadFaults:
    """How reads go."""

    delivery: Delivery = Delivery.AT_ONCE
    slice_delay_s: float = 0.001
    """Seconds between slices of a PACED read."""
    lost_slices: set[tuple[bytes, int]] = field(default_factory=set)
    """(key, layer of the layout) of slices that are not there when it is their turn."""
    lost_as: SliceState = SliceState.MISSING
    """What becomes of a slice that is not there."""
    reads_hang: bool = False
    """What is not there stays PENDING, and no read is finished before it is cancelled."""
    keeps_cancelled: bool = False
    """A cancelled read is not let go before the test finishes it."""
    from_devices: bool = False
    """Whether what is read counts as read from devices instead of from DRAM."""
    on_wait: Callable[[Wait], bool] | None = None
    """Is called by a ``MemoryClient`` of the store on the thread that is about to wait for
    something that has not arrived; True says that the wait's time is up already. A close of a
    read that is kept waits for its end, whatever the answer is."""


class ServedRead:
    """One read, its board and its destination. Thread-safe.

    Chunks and layers count from the read's first. ``pointers`` are the engine's pointers in
    the order in which the store saw them.
    """

    def __init__(
        self,
        session: MemorySession,
        request: store_pb2.ReadRequest,
        *,
        layout: StateLayout,
        board: Board,
        sources: tuple[StoredChunk | None, ...],
        faults: ReadFaults,
        clock: Callable[[], float],
    ) -> None:
        self.request = request
        self.keys = tuple(request.keys)
        self.order = Order(request.order)
        self.first_layer = request.first_layer
        self.layer_count = request.layer_count
        self.window_bytes = request.window_bytes
        self.pointers: list[int] = []
        self._session = session
        self._layout = layout
        self._board = board
        self._sources = sources
        self._faults = faults
        self._clock = clock
        self._deadline = clock() + request.deadline_ms / 1000
        self._lock = threading.RLock()
        self._pending = {
            (chunk, layer) for chunk in range(len(self.keys)) for layer in range(self.layer_count)
        }
        self._is_over = False

    @property
    def pointer(self) -> int:
        """How many leading chunks the engine computes itself."""
        return self._board.words.item(BoardWord.POINTER)

    @property
    def is_cancelled(self) -> bool:
        """Whether the engine wants nothing more of it."""
        return bool(self._board.words[BoardWord.CANCEL])

    @property
    def is_finished(self) -> bool:
        """Whether the board is closed, or the session has ended."""
        return self._is_over or self._session.is_ended

    def is_at(self, session: MemorySession | None, board_offset: int) -> bool:
        """Whether it is the read of this session with a board there."""
        return session is self._session and self.request.board_offset == board_offset

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - self._clock()

    def state(self, chunk: int, layer: int) -> SliceState:
        """State of one slice."""
        return SliceState(self._board.states.item(chunk, layer))

    def deliver(self, chunk: int | None = None, layer: int | None = None) -> int:
        """Brings a slice, a chunk, a layer of all chunks, or everything; how many it settled."""
        chunks = range(len(self.keys)) if chunk is None else (chunk,)
        layers = range(self.layer_count) if layer is None else (layer,)
        return self._bring((each, one) for each in chunks for one in layers)

    def deliver_next(self) -> bool:
        """Brings the next chunk, of a LAYER_FIRST read the next layer; False if all is settled."""
        return any(self._bring(part) for part in self._parts())

    def look(self) -> None:
        """Heeds what the engine wrote on the board, and the deadline."""
        with self._lock:
            if self.is_finished:
                return
            pointer = self.pointer
            if pointer != (self.pointers[-1] if self.pointers else 0):
                self.pointers.append(pointer)
            if self.is_cancelled and not self._faults.keeps_cancelled:
                self.finish(SliceState.SKIPPED)
            elif self.remaining_s <= 0:
                self.finish(SliceState.LATE)

    def finish(self, rest: SliceState = SliceState.SKIPPED) -> None:
        """Ends the read; what is pending becomes ``rest``."""
        with self._lock:
            if self.is_finished:
                return
            for place in self._pending:
                self._board.states[place] = rest
            self._pending.clear()
            self._board.words[BoardWord.FINISHED] = 1
            self._is_over = True
            if self._board.words[BoardWord.WATCHED] >= Watch.END:
                self._session.ring()

    def wait(self, wait: Wait) -> bool:
        """Lets a client wait; True when the wait's time is up already."""
        self.look()
        if self._faults.on_wait is not None:
            return self._faults.on_wait(wait)
        if self._faults.delivery is Delivery.ON_WAIT:
            wait.deliver()
        return False

    def wait_for_end(self) -> None:
        """Lets a client wait that closes the read and has cancelled it."""
        if self._faults.on_wait is not None and not self.is_finished:
            self._faults.on_wait(Wait(read=self, chunk=None, layer=None, timeout_s=None))

    def start(self) -> None:
        """Delivers what needs neither a wait nor the test."""
        if self._faults.delivery is Delivery.AT_ONCE:
            self._bring(place for part in self._parts() for place in part)
        elif self._faults.delivery is Delivery.PACED:
            threading.Thread(target=self._pace, name="kvstored-paced-read", daemon=True).start()

    def _pace(self) -> None:
        for place in [place for part in self._parts() for place in part]:
            time.sleep(self._faults.slice_delay_s)
            self._bring([place])
        while not self.is_finished:
            time.sleep(self._faults.slice_delay_s)
            self.look()

    def _parts(self) -> Iterator[list[tuple[int, int]]]:
        """All slices in the read's order: the chunks, of a LAYER_FIRST read the layers."""
        chunks, layers = range(len(self.keys)), range(self.layer_count)
        if self.order is Order.LAYER_FIRST:
            yield from ([(chunk, layer) for chunk in chunks] for layer in layers)
        else:
            ordered = reversed(chunks) if self.order is Order.TAIL_FIRST else chunks
            yield from ([(chunk, layer) for layer in layers] for chunk in ordered)

    def _bring(self, places: Iterable[tuple[int, int]]) -> int:
        """Settles pending slices; how many there were."""
        with self._lock:
            self.look()
            if self.is_finished:
                return 0
            pointer = self.pointer
            count = 0
            for chunk, layer in [place for place in places if place in self._pending]:
                state = SliceState.SKIPPED if chunk < pointer else self._copy(chunk, layer)
                if state is not SliceState.PENDING:
                    self._pending.discard((chunk, layer))
                    self._board.states[chunk, layer] = state
                    count += 1
            if count and self._board.words[BoardWord.WATCHED] >= Watch.PROGRESS:
                self._session.ring()
            if not self._pending and not self._faults.reads_hang:
                self.finish()
        return count

    def _copy(self, chunk: int, layer: int) -> SliceState:
        source = self._sources[chunk]
        stored_layer = self.first_layer + layer
        is_lost = (self.keys[chunk], stored_layer) in self._faults.lost_slices
        arena, board = self._session.arena, self._board
        if source is None or is_lost:
            most_bytes = self._layout.slice_bytes(stored_layer)
            for start, size in self._fragments(chunk, layer, most_bytes):
                arena[start : start + size] = bytes([RUBBISH]) * size
            return SliceState.PENDING if self._faults.reads_hang else self._faults.lost_as
        data = memoryview(source.slices[stored_layer])
        first = 0
        for start, size in self._fragments(chunk, layer, len(data)):
            arena[start : start + size] = data[first : first + size]
            first += size
        word = BoardWord.DEVICE_BYTES if self._faults.from_devices else BoardWord.DRAM_BYTES
        board.words[word] += np.uint64(len(data))
        if board.lengths is not None:
            board.lengths[chunk, layer] = len(data)
        return SliceState.RESIDENT

    def _fragments(self, chunk: int, layer: int, byte_count: int) -> list[tuple[int, int]]:
        return fragments(
            self.request.destination,
            chunk=chunk,
            layer=layer,
            byte_count=byte_count,
            chunk_count=len(self.keys),
        )
