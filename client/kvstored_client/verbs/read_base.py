"""What a read in flight offers without waiting, to threads and to tasks alike."""

from kvstored_client.values import ReadReport
from kvstored_client.verbs.progress import ReadProgress
from kvstored_contract.board import SliceState


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
