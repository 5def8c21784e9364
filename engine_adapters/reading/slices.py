"""The seam between a span and what its reads bring."""

from typing import Protocol

from torch import Tensor

from kvstored_client import SliceState


class Slices(Protocol):
    """The slices of one span, as those who use them want them.

    ``chunk`` counts from the span's first, ``layer`` from the model's; it is a layer that the
    span reads. ``state``, ``arrived_chunks`` and ``view`` may be called from any thread and never
    block; one thread waits and closes.
    """

    def state(self, chunk: int, layer: int | None = None) -> SliceState:
        """What became of a slice, or without ``layer`` of a chunk.

        RESIDENT when all of it is there, PENDING while all of it may still come, and anything
        else when it never will.
        """

    def arrived_chunks(self, layer: int) -> int:
        """Leading chunks of which the layer is RESIDENT; 0 before its read was started."""

    def wait(self, chunk: int, layer: int | None = None, *, timeout_s: float) -> None:
        """Blocks until the slice, or the chunk, is not PENDING, or the time is up.

        Returns at once for a slice whose read was not started.
        """

    def view(self, layer: int, chunks: range) -> Tensor:
        """The slices of ``chunks``: [chunks, *slice_shape], until ``close``; aliases memory.

        All of ``chunks`` have as many tokens; undefined where a slice is not RESIDENT.
        """

    def close(self) -> None:
        """Gives back what it holds besides the region. Its reads are cancelled before."""
