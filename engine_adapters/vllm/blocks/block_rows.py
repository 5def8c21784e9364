"""Rows of hidden states of blocks that are not complete yet."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

RowWork = Callable[["BlockRows"], None]


class GatheredRows(Protocol):
    """The rows of all forwards so far, maybe not at hand yet."""

    def use(self, work: RowWork) -> None:
        """Does ``work`` with them, at once or later, by this thread or another."""

    def forget(self, block_ids: Sequence[int]) -> None:
        """Blocks were filled with something else than what was computed."""


@dataclass(slots=True)
class _Block:
    """``filled`` rows from the first on lie in ``rows`` [layer_count, block_tokens, width]."""

    rows: Tensor
    filled: int = 0


class BlockRows:
    """Gathers the rows of every step by the block of the cache that the token lies in.

    Holds at most ``capacity`` blocks: the one that was written to the longest time ago goes
    first, and its chunk is not saved. A block whose rows did not come from its first token on
    without a gap gives nothing; a caller that fills one otherwise has to say so. Not thread-safe.
    """

    def __init__(self, *, capacity: int, block_tokens: int) -> None:
        self._capacity = capacity
        self._block_tokens = block_tokens
        self._blocks: OrderedDict[int, _Block] = OrderedDict()

    def add(self, rows: Tensor, slots: Sequence[int]) -> None:
        """Rows [layer_count, row_count, width] of tokens at ``slots`` of the cache.

        Slot s is token ``s % block_tokens`` of block ``s // block_tokens``; those of one request
        follow each other.
        """
        first = 0
        while first < len(slots):
            block_id, token = divmod(slots[first], self._block_tokens)
            stop = first + 1
            while stop < len(slots) and slots[stop] == slots[first] + stop - first:
                if slots[stop] // self._block_tokens != block_id:
                    break
                stop += 1
            self._put(block_id, token, rows[:, first:stop])
            first = stop

    def take(self, block_ids: Sequence[int]) -> list[Tensor] | None:
        """The rows of complete blocks, each [layer_count, block_tokens, width]; they are forgotten.

        None when one of them is not complete here.
        """
        taken = [self._blocks.pop(block_id, None) for block_id in block_ids]
        complete = [
            block.rows
            for block in taken
            if block is not None and block.filled == self._block_tokens
        ]
        return complete if len(complete) == len(taken) else None

    def use(self, work: RowWork) -> None:
        """At once."""
        work(self)

    def forget(self, block_ids: Sequence[int]) -> None:
        """Blocks were filled with something else than what was computed."""
        for block_id in block_ids:
            self._blocks.pop(block_id, None)

    def clear(self) -> None:
        """Forgets everything: rows of a step were missed, so that old ones may be another's."""
        self._blocks.clear()

    def _put(self, block_id: int, token: int, rows: Tensor) -> None:
        block = self._blocks.pop(block_id, None)
        if token == 0:
            layer_count, _, width = rows.shape
            if block is None:
                shape = (layer_count, self._block_tokens, width)
                block = _Block(torch.empty(shape, dtype=rows.dtype, device=rows.device))
            block.filled = 0
        if block is None or block.filled != token:
            return
        stop = token + rows.shape[1]
        block.rows[:, token:stop] = rows
        block.filled = stop
        self._blocks[block_id] = block
        if len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
