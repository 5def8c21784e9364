"""The way of states from the arena to the device that computes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch
from torch import Tensor

BUFFERS = 3
"""Layers, or parts of one, on their way to a GPU at once: one is filled, one is copied, one is
used."""


class Staging(Protocol):
    """Brings tensors of the arena to the device. One thread only."""

    def brought(self, host: Tensor) -> AbstractContextManager[Tensor]:
        """A context with ``host`` on the device, for work on the current stream.

        The arena's bytes are not needed any more once it is entered on a GPU, left on a CPU.
        """

    def finish(self) -> None:
        """Waits until everything that was launched has been carried out."""


class HostStaging:
    """For CPUs: tensors are used where they lie."""

    @contextmanager
    def brought(self, host: Tensor) -> Iterator[Tensor]:
        """``host`` itself."""
        yield host

    def finish(self) -> None:
        """Nothing is ever pending."""


class _Buffer:
    """One pinned buffer and its twin on the GPU; they grow to the largest tensor seen."""

    def __init__(self, device: torch.device) -> None:
        self.pinned = torch.empty(0, dtype=torch.uint8, pin_memory=True)
        self.twin = torch.empty(0, dtype=torch.uint8, device=device)
        self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here
        self.used = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here

    def reserve(self, byte_count: int) -> None:
        """Makes room; what the buffer held must be out of use."""
        if len(self.pinned) < byte_count:
            self.pinned = torch.empty(byte_count, dtype=torch.uint8, pin_memory=True)
            self.twin = torch.empty(byte_count, dtype=torch.uint8, device=self.twin.device)


class CudaStaging:
    """For CUDA: through pinned buffers on a stream of its own, while the GPU computes.

    Invariants: a pinned buffer is overwritten only after its copy is over (the host waits
    for ``copied``), its twin only after the work on it is over (the copy stream waits for
    ``used``). So at most ``BUFFERS`` tensors are on their way, however slow the GPU is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
        self._buffers = [_Buffer(device) for _ in range(BUFFERS)]
        self._next = 0

    @contextmanager
    def brought(self, host: Tensor) -> Iterator[Tensor]:
        """A copy of ``host`` on the GPU, which the work within the context may use."""
        buffer = self._buffers[self._next]
        self._next = (self._next + 1) % len(self._buffers)
        byte_count = host.numel() * host.dtype.itemsize
        buffer.copied.synchronize()
        if len(buffer.pinned) < byte_count:
            buffer.used.synchronize()
            buffer.reserve(byte_count)
            # The allocator orders the new memory after what the current stream does.
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        pinned = buffer.pinned[:byte_count].view(host.dtype).view(host.shape)
        twin = buffer.twin[:byte_count].view(host.dtype).view(host.shape)
        pinned.copy_(host)
        current = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(buffer.used)
            twin.copy_(pinned, non_blocking=True)
            buffer.copied.record(self._stream)
        current.wait_event(buffer.copied)
        try:
            yield twin
        finally:
            buffer.used.record(current)

    def finish(self) -> None:
        """Waits for the current stream, which waits for every copy."""
        torch.cuda.current_stream(self._device).synchronize()


def staging_for(device: torch.device) -> Staging:
    """The way to ``device``."""
    return CudaStaging(device) if device.type == "cuda" else HostStaging()
