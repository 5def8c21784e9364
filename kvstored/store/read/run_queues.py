"""What a read has still to issue, lane by lane, and what of it is given up instead.

A read can be overtaken: before each issue its owner looks at the board and gives up what
the engine's pointer has reached, what was cancelled, and what is late.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kvstored.store.read.plan import LayerRun
from kvstored.store.read.read_task import ReadTask
from kvstored.store.read.window import Window
from kvstored_contract.board import BoardWord, SliceState

RUNS_AT_ONCE = 256
"""Are given up together; others may look at the queues after that."""


class Taken(NamedTuple):
    """The next run to issue, if there is one, and the runs before it that were given up."""

    run: LayerRun | None
    given_up: list[tuple[LayerRun, SliceState]]


class RunQueues:
    """The runs of one read that were not issued, and its window. Thread-safe.

    ``is_damaged`` says of a chunk that nothing more of it should be read.
    """

    def __init__(
        self,
        task: ReadTask,
        plan: dict[int, list[LayerRun]],
        *,
        window_bytes: int,
        is_damaged: Callable[[int], bool],
    ) -> None:
        self.lanes = tuple(plan)
        """The lanes on which this read has runs."""
        self._words = task.target.board.words
        self._deadline = task.options.deadline
        self._is_damaged = is_damaged
        self._queues = {lane: deque(runs) for lane, runs in plan.items()}
        self._window = Window(window_bytes, plan)
        self._cancelled = False
        self._pointer = 0
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Gives up everything that is not in flight, at the next look of each lane."""
        with self._lock:
            self._cancelled = True

    def is_given_up(self) -> bool:
        """Whether runs wait that nobody wants: the client has cancelled them, or they are late."""
        if not any(self._queues.values()):
            return False
        return bool(self._words[BoardWord.CANCEL]) or time.monotonic() > self._deadline

    def give_up(self, lane: int) -> list[tuple[LayerRun, SliceState]]:
        """Takes away, and returns, some of what ``lane`` need not read any more: none is all."""
        with self._lock:
            return self._given_up(self._queues[lane], most=RUNS_AT_ONCE)

    def take(self, lane: int) -> Taken:
        """The next run to issue on ``lane``; none while there is none or the window is full.

        The engine's pointer is looked at here, immediately before the issue.
        """
        with self._lock:
            queue = self._queues[lane]
            given_up = self._given_up(queue)
            run = queue.popleft() if queue and self._has_room(lane, queue[0]) else None
        return Taken(run, given_up)

    def has_runs(self, lane: int) -> bool:
        """Whether ``lane`` has runs that were not issued."""
        return bool(self._queues[lane])

    def release(self, lane: int, run: LayerRun) -> bool:
        """Gives a run's bytes back to the window; called once when its transfer is over.

        True when a lane has found the window full, so that any lane may go on now.
        """
        with self._lock:
            return self._window.release(lane, run.byte_count)

    def _given_up(
        self, queue: deque[LayerRun], *, most: float = math.inf
    ) -> list[tuple[LayerRun, SliceState]]:
        given_up: list[tuple[LayerRun, SliceState]] = []
        while queue and len(given_up) < most and (verdict := self._verdict(queue[0])) is not None:
            given_up.append((queue.popleft(), verdict))
        return given_up

    def _has_room(self, lane: int, run: LayerRun) -> bool:
        lane_count = sum(map(bool, self._queues.values()))
        return self._window.take(lane, run.byte_count, lane_count=lane_count)

    def _verdict(self, run: LayerRun) -> SliceState | None:
        """Why a run is not read; called under the lock.

        The engine's words only ever move forward here: were a chunk's header given up and
        its other runs read, they would wait for it for ever, and hold their memory.
        """
        self._cancelled = self._cancelled or bool(self._words[BoardWord.CANCEL])
        self._pointer = max(self._pointer, int(self._words[BoardWord.POINTER]))
        if self._cancelled or run.chunk < self._pointer:
            return SliceState.SKIPPED
        if self._is_damaged(run.chunk):
            return SliceState.MISSING
        if time.monotonic() > self._deadline:
            return SliceState.LATE
        return None
