"""A CPU whose copies are as late as those of a GPU, and come in another order."""

import heapq
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from engine_adapters.device_copies.copies import Brought
from engine_adapters.device_copies.host_copies import HostCopies
from engine_adapters.device_copies.landing import Landing
from engine_adapters.device_copies.testing.poison import poison

PATIENCE_S = 60.0
"""Longest that anybody waits for a copy: a test that stopped them has to let them go."""


class _Late:
    """The landing of a copy that a thread makes."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        """The copy was made, or failed."""
        self._error = error
        self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether it was made, or failed."""
        return self._over.is_set()

    def wait(self) -> None:
        """Raises what the copy failed with, and TimeoutError after PATIENCE_S."""
        if not self._over.wait(PATIENCE_S):
            raise TimeoutError("a copy was never made")
        if self._error is not None:
            raise self._error

    def hold_engine(self) -> None:
        """The engine's work is done when it is launched, so the thread waits."""
        self.wait()


class DelayedCopies:
    """Copies within the host, each made by a thread about ``delay_s`` after it was asked for.

    The device is a CPU, whose engine has done its work when it has launched it. Copies that are
    asked for together come in a random order. Until a copy is made its target holds poison, and
    its source is read when it is made: what is given away or overwritten before shows. So it does
    with what was brought, where ``overwritten_count`` tells of it: the engine has it at once. While
    ``engine_lags`` what the engine has launched does not end, as far as marks tell.
    """

    def __init__(self, *, delay_s: float = 0.0, seed: int = 0) -> None:
        self.delay_s = delay_s
        self.made_count = 0
        self.overwritten_count = 0
        self.pinned: list[memoryview | None] = []
        self._host = HostCopies()
        self._random = random.Random(seed)  # noqa: S311  # no secret
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], object], _Late]] = []
        self._asked_count = 0
        self._is_stopped = False
        self._is_running = False
        self._engine_marks: list[_Late] | None = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """No copy is made within the context."""
        with self._changed:
            self._is_stopped = True
        try:
            yield
        finally:
            with self._changed:
                self._is_stopped = False
                self._changed.notify_all()

    @contextmanager
    def engine_lags(self) -> Iterator[None]:
        """Marks within the context are over when it is left."""
        marks: list[_Late] = []
        self._engine_marks = marks
        try:
            yield
        finally:
            self._engine_marks = None
            for mark in marks:
                mark.end()

    def pin(self, memory: memoryview | None) -> None:
        """Is noted."""
        self.pinned.append(memory)

    def mark(self) -> Landing:
        """Over, unless the engine lags."""
        mark = _Late()
        if self._engine_marks is None:
            mark.end()
        else:
            self._engine_marks.append(mark)
        return mark

    def gather(self, blocks: Tensor, block_ids: Sequence[int], target: Tensor) -> Landing:
        """The engine gathers at once; what it has gathered comes later."""
        chosen = blocks[torch.tensor(block_ids)]
        poison(target)
        return self._later(lambda: self._host.gather(chosen, range(len(chosen)), target))

    def scatter(
        self, parts: Sequence[Tensor], blocks: Tensor, block_ids: Sequence[int], *, after: Landing
    ) -> Landing:
        """Blocks that the engine may still use are left alone."""

        def spoil() -> None:
            for block_id in block_ids:
                poison(blocks[block_id])

        def copy() -> None:
            after.wait()
            spoil()
            self._host.scatter(parts, blocks, block_ids, after=after)

        if after.is_over:
            spoil()
        return self._later(copy)

    def fetch(self, sources: Sequence[Tensor], target: Tensor) -> Landing:
        """The sources are read later."""
        poison(target)
        return self._later(lambda: self._host.fetch(sources, target))

    @contextmanager
    def brought(self, source: Tensor) -> Iterator[Brought]:
        """A copy, which the engine has at once; the source must stay as it is for a while."""
        staged = source.clone()
        brought = _bytes_of(source).clone()

        def check() -> None:
            if not torch.equal(_bytes_of(source), brought):
                self.overwritten_count += 1
                raise RuntimeError("what was brought was overwritten before that was over")

        landing = self._later(check)
        try:
            yield Brought(staged, landing)
        except BaseException:
            landing.wait()
            raise
        # What keeps it keeps nothing.
        poison(staged)

    def _later(self, copy: Callable[[], object]) -> Landing:
        landing = _Late()
        with self._changed:
            due_s = 0.0
            if not self._is_stopped:
                due_s = time.monotonic() + self.delay_s * self._random.uniform(0.5, 1.5)
            # Those that were stopped are due together, and come in a random order, too.
            place = self._random.getrandbits(32) << 32 | self._asked_count
            self._asked_count += 1
            heapq.heappush(self._due, (due_s, place, copy, landing))
            self._changed.notify_all()
            if not self._is_running:
                # One that ends with its work: nobody closes copies.
                self._is_running = True
                threading.Thread(target=self._run, name="delayed-copies", daemon=True).start()
        return landing

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._is_running = False
                    return
                while self._is_stopped:
                    self._changed.wait()
                wait_s = self._due[0][0] - time.monotonic()
                if wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                _, _, copy, landing = heapq.heappop(self._due)
            try:
                # Engines make their tensors in this mode, and it belongs to a thread.
                with torch.inference_mode():
                    copy()
            except Exception as error:
                landing.end(error)
            else:
                self.made_count += 1
                landing.end()


def _bytes_of(states: Tensor) -> Tensor:
    """A copy where they have gaps; as numbers two that are none would differ."""
    return states.contiguous().view(-1).view(torch.uint8)
