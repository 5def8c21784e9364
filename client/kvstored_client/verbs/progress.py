"""How far a read came, as its board shows it; what threads and tasks see of it without waiting."""

import time

from kvstored_client.values import ReadReport
from kvstored_client.verbs.held_board import HeldBoard
from kvstored_contract.board import Board, BoardWord, SliceState

_RESIDENT = bytes((SliceState.RESIDENT,))
_MAY_COME = bytes((SliceState.PENDING, SliceState.RESIDENT))


class ReadProgress:
    """Everything about a read that needs no waiting. Thread-safe.

    ``layer`` counts from the read's first layer, ``chunk`` from its first chunk; both
    raise IndexError outside the read. ``board`` is where it is read, and where the engine tells
    the daemon what it wants. ``limit``: time.monotonic() at which a daemon that has not finished
    the read counts as hung.
    """

    __slots__ = ("_row", "board", "limit")

    def __init__(self, board: HeldBoard, *, limit: float = 0.0) -> None:
        self.board = board
        self.limit = limit
        with board.lock:
            shown = board.shown()
            self._row = _RESIDENT * shown.states.shape[1]

    def state(self, chunk: int, layer: int) -> SliceState:
        """State of one slice."""
        with self.board.lock:
            shown = self.board.shown()
            _check(shown, chunk, layer)
            return SliceState(shown.states.item(chunk, layer))

    def is_resident(self, chunk: int, layer: int | None = None) -> bool:
        """Whether the slice, or every layer of the chunk, lies verified at its destination.

        A load from shared memory: about a microsecond, no system call.
        """
        with self.board.lock:
            shown = self.board.shown()
            _check(shown, chunk, layer)
            if layer is None:
                row = shown.states[chunk].tobytes()
                return bool(row == self._row)
            return shown.states.item(chunk, layer) == SliceState.RESIDENT

    def slice_bytes(self, chunk: int, layer: int) -> int | None:
        """Bytes of a resident slice; None where it is not, or the layout has no codec."""
        with self.board.lock:
            shown = self.board.shown()
            _check(shown, chunk, layer)
            # The state is loaded first: it is written after the length.
            is_resident = shown.states.item(chunk, layer) == SliceState.RESIDENT
            lengths = shown.lengths
            return lengths.item(chunk, layer) if is_resident and lengths is not None else None

    def is_chunk_settled(self, chunk: int, layer: int | None = None) -> bool:
        """Whether waiting for the slice, or for the chunk, can bring nothing new."""
        with self.board.lock:
            shown = self.board.shown()
            _check(shown, chunk, layer)
            states = shown.states[chunk]
            if layer is not None:
                return bool(states[layer] != SliceState.PENDING)
            # Engines look often: a tenth of what comparing arrays takes.
            row = states.tobytes()
            return row == self._row or bool(row.translate(None, _MAY_COME))

    def is_layer_settled(self, layer: int) -> bool:
        """Whether no chunk of the layer is pending."""
        with self.board.lock:
            shown = self.board.shown()
            _check(shown, None, layer)
            return bool((shown.states[:, layer] != SliceState.PENDING).all())

    def is_layer_resident(self, layer: int) -> bool:
        """Whether every chunk of the layer lies verified at its destination."""
        with self.board.lock:
            shown = self.board.shown()
            _check(shown, None, layer)
            return bool((shown.states[:, layer] == SliceState.RESIDENT).all())

    def resident_chunks(self, layer: int) -> int:
        """Leading chunks whose slice of the layer lies verified at its destination.

        One look for all of them: about as long as one of ``is_resident``.
        """
        with self.board.lock:
            shown = self.board.shown()
            _check(shown, None, layer)
            column = shown.states[:, layer].tobytes()
        return len(column) - len(column.lstrip(_RESIDENT))

    @property
    def finished(self) -> bool:
        """Whether nothing will change any more and the destination is the engine's again."""
        self.board.check()
        return self.is_finished()

    def is_finished(self) -> bool:
        """As ``finished``, without looking whether the daemon still lives."""
        with self.board.lock:
            shown = self.board.shown()
            return bool(shown.words[BoardWord.FINISHED])

    def report(self) -> ReadReport:
        """How far the read is now."""
        with self.board.lock:
            shown = self.board.shown()
            words = shown.words
            # FINISHED is loaded before the states: it is written after them.
            finished = bool(words[BoardWord.FINISHED])
            whole = (shown.states == SliceState.RESIDENT).all(axis=1)
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

    def deadline(self, timeout_s: float | None) -> float:
        """The time at which a wait ends, never after the read's own limit."""
        if timeout_s is None:
            return self.limit
        return min(time.monotonic() + timeout_s, self.limit)

    def give_up_when_overdue(self) -> None:
        """Ends the session when the limit has passed: then no answer can be hoped for."""
        if time.monotonic() >= self.limit:
            self.board.end_session()


def _check(board: Board, chunk: int | None, layer: int | None) -> None:
    chunk_count, layer_count = board.states.shape
    if chunk is not None and not 0 <= chunk < chunk_count:
        raise IndexError(f"chunk {chunk} is outside a read of {chunk_count} chunks")
    if layer is not None and not 0 <= layer < layer_count:
        raise IndexError(f"layer {layer} is outside a read of {layer_count} layers")


class ReadBase:
    """The board of one read. Every method may be called from any thread and never blocks.

    ``chunk`` and ``layer`` count from the read's first chunk and first layer; outside the
    read is IndexError. When the daemon dies, every pending slice counts as MISSING.
    """

    __slots__ = ("_progress",)

    def __init__(self, progress: ReadProgress) -> None:
        self._progress = progress

    def is_resident(self, chunk: int, layer: int | None = None) -> bool:
        """Whether the slice, or every layer of the chunk, lies verified at its destination.

        A load from shared memory: about a microsecond, no system call.
        """
        return self._progress.is_resident(chunk, layer)

    def is_chunk_settled(self, chunk: int) -> bool:
        """Whether all of the chunk has arrived, or some of it never will."""
        return self._progress.is_chunk_settled(chunk)

    def is_layer_settled(self, layer: int) -> bool:
        """Whether no chunk of the layer is pending: waiting for it brings nothing new."""
        return self._progress.is_layer_settled(layer)

    def resident_chunks(self, layer: int) -> int:
        """Leading chunks whose slice of the layer lies verified at its destination.

        One look for all of them: about as long as one of ``is_resident``.
        """
        return self._progress.resident_chunks(layer)

    def state(self, chunk: int, layer: int) -> SliceState:
        """State of one slice."""
        return self._progress.state(chunk, layer)

    def slice_bytes(self, chunk: int, layer: int) -> int | None:
        """Bytes of a resident slice at its destination; None where it is not resident.

        For layouts with a codec, whose slices have lengths of their own; always None for
        others, where ``StateLayout.slice_bytes`` tells it.
        """
        return self._progress.slice_bytes(chunk, layer)

    @property
    def finished(self) -> bool:
        """Whether nothing will change any more and the destination is the engine's again."""
        return self._progress.finished

    def report(self) -> ReadReport:
        """How far the read is now."""
        return self._progress.report()

    def advance(self, pointer: int) -> None:
        """Tells the daemon that the engine computes the first ``pointer`` chunks itself."""
        self._progress.board.advance(pointer)

    def cancel(self) -> None:
        """Tells the daemon to stop and returns at once; ``wait`` until it has."""
        self._progress.board.cancel()
