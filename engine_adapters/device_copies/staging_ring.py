"""Memory of a GPU for tensors of the host that the engine uses once."""

from dataclasses import dataclass

import torch
from torch import Tensor

BUFFERS = 3
"""Tensors on their way at once: one is copied, one is used, one waits."""


@dataclass(slots=True, eq=False)
class StagingBuffer:
    """``memory`` is free once the device has reached ``used``."""

    memory: Tensor
    used: torch.cuda.Event


class StagingRing:
    """Takes turns among a few buffers, which grow to the largest tensor seen. One thread.

    So the device holds at most BUFFERS tensors, however late it is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers = [
            StagingBuffer(
                torch.empty(0, dtype=torch.uint8, device=device),
                torch.cuda.Event(),  # type: ignore[no-untyped-call]  # torch has no types here
            )
            for _ in range(BUFFERS)
        ]
        self._next = 0

    def take(self, byte_count: int, *, stream: torch.cuda.Stream) -> StagingBuffer:
        """The next buffer, with room: what ``stream`` launches from here on may overwrite it."""
        buffer = self._buffers[self._next]
        self._next = (self._next + 1) % len(self._buffers)
        stream.wait_event(buffer.used)
        if len(buffer.memory) < byte_count:
            # What is freed here was last used before what the stream now waits for.
            with torch.cuda.stream(stream):
                buffer.memory = torch.empty(byte_count, dtype=torch.uint8, device=self._device)
        return buffer
