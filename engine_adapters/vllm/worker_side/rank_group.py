"""What the ranks of a tensor-parallel group do together."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class RankGroup(Protocol):
    """Every rank has to make the same calls in the same order: each waits for all others.

    The engine's thread only, since the engine's own calls are counted, too.
    """

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def least(self, numbers: Sequence[int]) -> list[int]:
        """Of each number the least that any rank says; all say as many."""

    def gather(self, part: Tensor, into: Tensor) -> None:
        """The parts of all ranks, by their rank: ``part`` [n] and ``into`` [size, n], of bytes."""
