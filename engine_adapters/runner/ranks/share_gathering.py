"""Brings together what the processes of a tensor group have read of a layer."""

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.runner.ranks.collective_calls import CollectiveCalls
from engine_adapters.runner.ranks.model_shard import even_share


class ShareGathering:
    """One process's side. Each reads the chunks of ``share`` and is given all of them.

    Every process must make the same calls; each raises RanksLostError. One thread only: what
    ``gathered`` gives is valid until the next call.
    """

    def __init__(
        self,
        group: ProcessGroup,
        calls: CollectiveCalls,
        *,
        copies: DeviceCopies,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.size = distributed.get_world_size(group)
        self._group = group
        self._calls = calls
        self._copies = copies
        self._rank = distributed.get_rank(group)
        self._own = self._all = torch.empty(0, dtype=dtype, device=device)

    def share(self, chunk_count: int) -> range:
        """Which of so many chunks this process reads."""
        return even_share(chunk_count, self._rank, self.size)

    def gathered(self, states: Tensor | None, *, chunk_count: int, elements: int) -> Tensor:
        """A layer's slices of all chunks: [chunk_count, elements], on the device.

        ``states`` are those that this process has, the first of its share; None: it has none.
        Chunks that no process has hold anything.
        """
        # Every process sends as much as the largest share, that of rank 0, holds.
        sent_chunks = len(even_share(chunk_count, 0, self.size))
        own = self._own = _room(self._own, sent_chunks * elements)
        own = own[: sent_chunks * elements]
        if states is not None:
            with self._copies.brought(states) as brought:
                own[: states.numel()].view(states.shape).copy_(brought.tensor)
            brought.landing.wait()
        if self.size == 1:
            return own.view(sent_chunks, elements)
        everything = self._all = _room(self._all, self.size * len(own))
        everything = everything[: self.size * len(own)]
        self._calls.make(
            lambda: distributed.all_gather_single(everything, own, group=self._group, async_op=True)
        )
        gathered = everything.view(self.size, sent_chunks, elements)
        if chunk_count == self.size * sent_chunks:
            return gathered.view(chunk_count, elements)
        shares = [even_share(chunk_count, rank, self.size) for rank in range(self.size)]
        return torch.cat([gathered[rank, : len(share)] for rank, share in enumerate(shares)])


def _room(buffer: Tensor, count: int) -> Tensor:
    """``buffer``, or a new one if it has fewer than ``count`` elements."""
    return buffer if len(buffer) >= count else buffer.new_empty(count)
