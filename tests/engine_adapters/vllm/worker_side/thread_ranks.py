"""Ranks that are threads of one process."""

import threading
from collections.abc import Sequence

from torch import Tensor

from tests.support.waiting import PATIENCE_S


class ThreadRanks:
    """What one rank calls; ``ranks_of`` makes those of a group.

    A call that not every rank makes ends with BrokenBarrierError after ``patience_s``, and one that
    differs from the others' with AssertionError.
    """

    def __init__(self, rank: int, said: list[object], barrier: threading.Barrier) -> None:
        self._rank = rank
        self._said = said
        self._barrier = barrier
        self.calls: list[str] = []

    @property
    def size(self) -> int:
        return len(self._said)

    def least(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append("least")
        return [min(each) for each in zip(*self._exchange(list(numbers)), strict=True)]

    def gather(self, part: Tensor, into: Tensor) -> None:
        self.calls.append("gather")
        for place, other in zip(into, self._exchange(part.clone()), strict=True):
            assert isinstance(other, Tensor)
            place.copy_(other)

    def _exchange(self, mine: object) -> list[object]:
        self._said[self._rank] = mine
        self._barrier.wait()
        others = list(self._said)
        self._barrier.wait()
        assert len({type(each) for each in others}) == 1, "every rank makes the same call"
        return others


def ranks_of(count: int, *, patience_s: float = PATIENCE_S) -> list[ThreadRanks]:
    """The ranks of a group."""
    said: list[object] = [None] * count
    barrier = threading.Barrier(count, timeout=patience_s)
    return [ThreadRanks(rank, said, barrier) for rank in range(count)]
