"""What an engine asks of the memory of its device."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine_adapters.device_copies.landing import Landing


@dataclass(frozen=True, slots=True)
class Brought:
    """A tensor of the host on the device, for what the engine launches within the context.

    The host's bytes stay as they are until the context is left and ``landing`` is over, as it is
    where an error has left the context.
    """

    tensor: Tensor
    landing: Landing


class DeviceCopies(Protocol):
    """Copies between the host and one device, beside what the engine computes there.

    The engine launches its work in an order of its own (on CUDA: the stream that is current on its
    thread), and is never made to wait by a copy unless somebody calls ``Landing.hold_engine``.
    ``scatter`` and ``pin`` may be called by any thread, everything else by the engine's.

    Blocks are [block_count, *inner], of any strides, whose innermost is 1. ``block_ids`` are
    different from each other. Bytes of the host are tensors of uint8.
    """

    def pin(self, memory: memoryview | None) -> None:
        """Host memory that copies will use from here on; that of the call before no longer is.

        With None no memory is: the last call for copies that nobody needs any more.

        Copies from and to other memory work as well, only slower.
        """

    def mark(self) -> Landing:
        """Everything that the engine has launched so far."""

    def gather(self, blocks: Tensor, block_ids: Sequence[int], target: Tensor) -> Landing:
        """Copies blocks, one behind the other, into rows [row_count, row_bytes] of the host.

        The blocks are those of now: the engine may overwrite them when this returns.
        """

    def scatter(
        self, parts: Sequence[Tensor], blocks: Tensor, block_ids: Sequence[int], *, after: Landing
    ) -> Landing:
        """Copies bytes of the host into blocks: ``parts`` [part_bytes], each of whole blocks.

        It begins when ``after`` is over: whatever the engine still does with the blocks.
        """

    def fetch(self, sources: Sequence[Tensor], target: Tensor) -> Landing:
        """Copies one tensor of the device, or several of one shape, stacked, to the host.

        ``sources`` may be freed then, but not overwritten before the landing is over.
        """

    def brought(self, source: Tensor) -> AbstractContextManager[Brought]:
        """A context with a tensor of the host on the device."""
