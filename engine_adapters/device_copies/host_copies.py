"""Copies where the device's memory is the host's: they end before they return."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from engine_adapters.device_copies.copies import Brought
from engine_adapters.device_copies.landing import Landing


class _Over:
    """A landing that is over from the start."""

    @property
    def is_over(self) -> bool:
        """Always."""
        return True

    def wait(self) -> None:
        """There is nothing to wait for."""

    def hold_engine(self) -> None:
        """There is nothing to wait for."""


OVER: Landing = _Over()
"""Of a copy that ended before it returned."""


class HostCopies:
    """For CPUs."""

    def pin(self, memory: memoryview | None) -> None:
        """Nothing: no device reads it."""

    def mark(self) -> Landing:
        """Whatever was launched has ended."""
        return OVER

    def gather(self, blocks: Tensor, block_ids: Sequence[int], target: Tensor) -> Landing:
        """Copies, at once into the target where neither has gaps."""
        ids = torch.tensor(block_ids)
        rows = target.view(blocks.dtype)
        if rows.is_contiguous() and blocks[0].is_contiguous():
            torch.index_select(blocks, 0, ids, out=rows.view(-1, *blocks.shape[1:]))
        else:
            rows.copy_(blocks[ids].reshape(rows.shape))
        return OVER

    def scatter(
        self, parts: Sequence[Tensor], blocks: Tensor, block_ids: Sequence[int], *, after: Landing
    ) -> Landing:
        """Copies by the calling thread alone.

        A copy of torch's would be shared among threads on the cores that the engine computes on,
        and OpenMP would bind the caller to one of them.
        """
        after.wait()
        target, ids = blocks.numpy(), iter(block_ids)
        for part in parts:
            for block in part.numpy().view(target.dtype).reshape(-1, *target.shape[1:]):
                np.copyto(target[next(ids)], block)
        return OVER

    def fetch(self, sources: Sequence[Tensor], target: Tensor) -> Landing:
        """Copies."""
        if len(sources) == 1:
            target.copy_(sources[0])
        else:
            torch.stack(tuple(sources), out=target)
        return OVER

    @contextmanager
    def brought(self, source: Tensor) -> Iterator[Brought]:
        """``source`` itself, where it lies."""
        yield Brought(source, OVER)
