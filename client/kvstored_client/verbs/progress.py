"""How far a read came, as its board shows it.

Invariants: while the session lives the board is in the arena; afterwards (the session
lost, or the read closed) it is a private copy in which nothing is PENDING, and the
board's place in the arena belongs to the client again.
"""

import threading
import time
from typing import Self

from kvstored_client.session.presence import Presence
from kvstored_client.session.region import Region
from kvstored_client.values import ReadReport
from kvstored_contract.board import Board, BoardWord, SliceState, Watch, board_bytes

_MAY_COME = bytes((SliceState.PENDING, SliceState.RESIDENT))


class ReadProgress:
    """Everything about a read that needs no waiting. Thread-safe.

    ``layer`` counts from the read's first layer, ``chunk`` from its first chunk; both
    raise IndexError outside the read.
    """

    __slots__ = ("_board", "_lock", "_presence", "_region", "_row", "limit")

    def __init__(
        self,
        board: Board,
        *,
        region: Region | None = None,
        presence: Presence | None = None,
        limit: float = 0.0,
    ) -> None:
        self._board = board
        self._region = region
        self._presence = presence
        self._lock = threading.Lock()
        self._row = bytes([SliceState.RESIDENT]) * board.states.shape[1]
        self.limit = limit
        """time.monotonic() at which a daemon that has not finished the read counts as hung."""

    @classmethod
    def start(
        cls,
        region: Region,
        presence: Presence,
        *,
        chunk_count: int,
        layer_count: int,
        has_lengths: bool = False,
        limit: float,
    ) -> Self:
        """Progress of a read that is about to be asked for; ``region`` becomes its board."""
        board = Board(
            region.view,
            chunk_count=chunk_count,
            layer_count=layer_count,
            has_lengths=has_lengths,
        )
        board.clear()
        return cls(board, region=region, presence=presence, limit=limit)

    @classmethod
    def missing(cls, *, chunk_count: int, layer_count: int) -> Self:
        """A finished read that found nothing; also the one of no chunks."""
        return cls(_missing_board(chunk_count, layer_count))

    @property
    def board_offset(self) -> int | None:
        """Where in the arena the board lies; None when it is there no more."""
        region = self._region
        return None if region is None else region.offset

    def state(self, chunk: int, layer: int) -> SliceState:
        """State of one slice."""
        self._check(chunk, layer)
        with self._lock:
            self._refresh()
            return SliceState(self._board.states.item(chunk, layer))

    def is_resident(self, chunk: int, layer: int | None = None) -> bool:
        """Whether the slice, or every layer of the chunk, lies verified at its destination.

        A load from shared memory: under a microsecond, no system call.
        """
        self._check(chunk, layer)
        with self._lock:
            if layer is None:
                row = self._board.states[chunk].tobytes()
                return bool(row == self._row)
            return self._board.states.item(chunk, layer) == SliceState.RESIDENT

    def slice_bytes(self, chunk: int, layer: int) -> int | None:
        """Bytes of a resident slice; None where it is not, or the layout has no codec."""
        self._check(chunk, layer)
        with self._lock:
            # The state is loaded first: it is written after the length.
            is_resident = self._board.states.item(chunk, layer) == SliceState.RESIDENT
            lengths = self._board.lengths
            return lengths.item(chunk, layer) if is_resident and lengths is not None else None

    def is_chunk_settled(self, chunk: int, layer: int | None = None) -> bool:
        """Whether waiting for the slice, or for the chunk, can bring nothing new."""
        self._check(chunk, layer)
        with self._lock:
            self._refresh()
            states = self._board.states[chunk]
            if layer is not None:
                return bool(states[layer] != SliceState.PENDING)
            # Engines look often: a tenth of what comparing arrays takes.
            row = states.tobytes()
            return row == self._row or bool(row.translate(None, _MAY_COME))

    def is_layer_settled(self, layer: int) -> bool:
        """Whether no chunk of the layer is pending."""
        self._check(None, layer)
        with self._lock:
            self._refresh()
            return bool((self._board.states[:, layer] != SliceState.PENDING).all())

    def is_layer_resident(self, layer: int) -> bool:
        """Whether every chunk of the layer lies verified at its destination."""
        self._check(None, layer)
        with self._lock:
            return bool((self._board.states[:, layer] == SliceState.RESIDENT).all())

    @property
    def finished(self) -> bool:
        """Whether nothing will change any more and the destination is the engine's again."""
        presence = self._presence
        if presence is not None:
            presence.check()
        return self.is_finished()

    def is_finished(self) -> bool:
        """As ``finished``, without looking whether the daemon still lives."""
        with self._lock:
            self._refresh()
            return bool(self._board.words[BoardWord.FINISHED])

    def report(self) -> ReadReport:
        """How far the read is now."""
        with self._lock:
            self._refresh()
            words = self._board.words
            # FINISHED is loaded before the states: it is written after them.
            finished = bool(words[BoardWord.FINISHED])
            whole = (self._board.states == SliceState.RESIDENT).all(axis=1)
            resident = tuple(whole.tolist())
            return ReadReport(
                resident=resident,
                resident_prefix=next(
                    (index for index, is_whole in enumerate(resident) if not is_whole),
                    len(resident),
                ),
                device_bytes=int(words[BoardWord.DEVICE_BYTES]),
                dram_bytes=int(words[BoardWord.DRAM_BYTES]),
                finished=finished,
            )

    def advance(self, pointer: int) -> None:
        """Tells the daemon that the engine computes the first ``pointer`` chunks itself."""
        with self._lock:
            self._board.words[BoardWord.POINTER] = pointer

    def cancel(self) -> None:
        """Tells the daemon to stop; what is resident stays, the rest becomes SKIPPED."""
        with self._lock:
            self._board.words[BoardWord.CANCEL] = 1

    def watch(self, watch: Watch) -> None:
        """Asks the daemon for reports from now on; to be called before the look that may wait."""
        with self._lock:
            words = self._board.words
            words[BoardWord.WATCHED] = max(words.item(BoardWord.WATCHED), watch)

    def deadline(self, timeout_s: float | None) -> float:
        """The time at which a wait ends, never behind the read's own limit."""
        if timeout_s is None:
            return self.limit
        return min(time.monotonic() + timeout_s, self.limit)

    def give_up_when_overdue(self) -> None:
        """Ends the session when the limit has passed: then no answer can be hoped for."""
        presence = self._presence
        if presence is not None and time.monotonic() >= self.limit and not self.is_finished():
            presence.end()

    def settle(self) -> None:
        """Frees the board of a finished read; the outcome stays readable."""
        with self._lock:
            self._refresh()
            if self._region is not None and self._board.words[BoardWord.FINISHED]:
                self._keep_copy()

    def _refresh(self) -> None:
        if self._presence is not None and self._presence.lost:
            self._keep_copy()

    def _keep_copy(self) -> None:
        board = _missing_board(*self._board.states.shape)
        if self._board.lengths is not None:
            board.lengths = self._board.lengths.copy()
        board.states[:] = self._board.states
        board.states[board.states == SliceState.PENDING] = SliceState.MISSING
        board.words[:] = self._board.words
        board.words[BoardWord.FINISHED] = 1
        self._board = board
        region, self._region, self._presence = self._region, None, None
        if region is not None:
            region.release()

    def _check(self, chunk: int | None, layer: int | None) -> None:
        chunk_count, layer_count = self._board.states.shape
        if chunk is not None and not 0 <= chunk < chunk_count:
            raise IndexError(f"chunk {chunk} is outside a read of {chunk_count} chunks")
        if layer is not None and not 0 <= layer < layer_count:
            raise IndexError(f"layer {layer} is outside a read of {layer_count} layers")


def _missing_board(chunk_count: int, layer_count: int) -> Board:
    size = board_bytes(chunk_count=chunk_count, layer_count=layer_count)
    board = Board(memoryview(bytearray(size)), chunk_count=chunk_count, layer_count=layer_count)
    board.words[BoardWord.FINISHED] = 1
    board.states[:] = SliceState.MISSING
    return board
