"""The board of a read, wherever it lies.

Invariants: while the session lives the board is in the arena; afterwards (the session
lost, or the read closed) it is a private copy in which nothing is PENDING, and the
board's place in the arena belongs to the client again.
"""

import threading
from typing import Self

from kvstored_client.session.presence import Presence
from kvstored_client.session.region import Region
from kvstored_contract.board import Board, BoardWord, SliceState, Watch, board_bytes


class HeldBoard:
    """Where the board is now. Thread-safe; ``shown`` needs ``lock``.

    A plain lock, taken by ``with``: a signal that raises in the midst of a look leaves it free.
    """

    __slots__ = ("_board", "_presence", "_region", "lock")

    def __init__(
        self, board: Board, *, region: Region | None = None, presence: Presence | None = None
    ) -> None:
        self._board = board
        self._region = region
        self._presence = presence
        self.lock = threading.Lock()

    @classmethod
    def start(
        cls,
        region: Region,
        presence: Presence,
        *,
        chunk_count: int,
        layer_count: int,
        has_lengths: bool = False,
    ) -> Self:
        """The board of a read that is about to be asked for, in ``region``."""
        board = Board(
            region.view,
            chunk_count=chunk_count,
            layer_count=layer_count,
            has_lengths=has_lengths,
        )
        board.clear()
        return cls(board, region=region, presence=presence)

    @classmethod
    def missing(cls, *, chunk_count: int, layer_count: int) -> Self:
        """The board of a finished read that found nothing; also of one of no chunks."""
        return cls(_missing_board(chunk_count, layer_count))

    def shown(self) -> Board:
        """The board; call it, and use what it returns, with ``lock`` held.

        What the daemon did before the session was lost is settled first.
        """
        if self._presence is not None and self._presence.lost:
            self._keep_copy()
        return self._board

    @property
    def offset(self) -> int | None:
        """Where in the arena the board lies; None when it is there no more."""
        region = self._region
        return None if region is None else region.offset

    def check(self) -> None:
        """Looks whether the daemon still lives: one system call."""
        presence = self._presence
        if presence is not None:
            presence.check()

    def end_session(self) -> None:
        """Ends the session unless the read is finished: the daemon may write to its memory yet."""
        with self.lock:
            is_finished = bool(self.shown().words[BoardWord.FINISHED])
        presence = self._presence
        if not is_finished and presence is not None:
            presence.end()

    def advance(self, pointer: int) -> None:
        """Tells the daemon that the engine computes the first ``pointer`` chunks itself."""
        with self.lock:
            self.shown().words[BoardWord.POINTER] = pointer

    def cancel(self) -> None:
        """Tells the daemon to stop; what is resident stays, the rest becomes SKIPPED."""
        with self.lock:
            self.shown().words[BoardWord.CANCEL] = 1

    def watch(self, watch: Watch) -> None:
        """Asks the daemon for reports from now on; to be called before the look that may wait."""
        with self.lock:
            words = self.shown().words
            words[BoardWord.WATCHED] = max(words.item(BoardWord.WATCHED), watch)

    def settle(self) -> None:
        """Frees the board of a finished read; the outcome stays readable."""
        with self.lock:
            board = self.shown()
            if self._region is not None and board.words[BoardWord.FINISHED]:
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


def _missing_board(chunk_count: int, layer_count: int) -> Board:
    size = board_bytes(chunk_count=chunk_count, layer_count=layer_count)
    board = Board(memoryview(bytearray(size)), chunk_count=chunk_count, layer_count=layer_count)
    board.words[BoardWord.FINISHED] = 1
    board.states[:] = SliceState.MISSING
    return board
