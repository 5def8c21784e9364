"""Collective calls of the processes of one model that end by a deadline."""

from collections.abc import Callable
from datetime import timedelta

from torch.distributed import Work

LEAST_WAIT_S = 0.001
"""A call is given a moment even after the deadline: it may be over already."""


class RanksLostError(RuntimeError):
    """A process did not take part in a call: the groups may not be in step any more."""


class CollectiveCalls:
    """Calls until one fails or lasts longer than ``deadline_s``, which is one of ``clock``.

    A call that was given up may still be under way and write to its tensors, which are kept for
    it. One thread only.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.deadline_s = clock()
        self._clock = clock
        self._lost: list[object] = []
        self._is_broken = False
        self._waited_s = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether a call failed: no more of them are made."""
        return self._is_broken

    def take_waited_s(self) -> float:
        """How long calls took since this was asked last."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def make(self, begin: Callable[[], Work | None]) -> None:
        """Begins a call and waits until it is over; raises RanksLostError.

        ``begin`` gives no Work where the process is not in the group, as torch has it.
        """
        if self._is_broken:
            raise RanksLostError("an earlier call failed")
        begun_s = self._clock()
        left_s = max(LEAST_WAIT_S, self.deadline_s - begun_s)
        work: Work | None = None
        try:
            work = begin()
            if work is not None:
                work.wait(timedelta(seconds=left_s))
        except RuntimeError as error:
            self._is_broken = True
            self._lost += [begin, work]
            raise RanksLostError(f"a process did not answer for {left_s:.1f} s: {error}") from error
        self._waited_s += self._clock() - begun_s
