"""Fair issue of many streams to one place: a device, or the DRAM tier."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kvstored.store.read.plan import LayerRun
from kvstored.store.read.read_stream import ReadStream


@dataclass(frozen=True, slots=True)
class LaneSlot:
    """What one transfer in flight may use: a header page and a bounce buffer."""

    header: memoryview
    bounce: memoryview


class Transfer(NamedTuple):
    """One run in flight on a lane."""

    stream: ReadStream
    run: LayerRun
    slot: LaneSlot


class Lane:
    """Keeps as many transfers in flight as it has slots, one stream after the other.

    ``issue`` starts a transfer and must not block; ``done`` must follow for each.
    Thread-safe. No lock is held while ``issue`` runs.
    """

    def __init__(
        self, index: int, slots: list[LaneSlot], issue: Callable[[int, Transfer], None]
    ) -> None:
        self._index = index
        self._slots = slots
        self._issue = issue
        self._streams: deque[ReadStream] = deque()
        self._lock = threading.Lock()

    def add(self, stream: ReadStream) -> None:
        """Adds a stream, unless its runs on this lane were given up meanwhile."""
        with self._lock:
            if stream.queues.has_runs(self._index):
                self._streams.append(stream)
        self.pump()

    def give_up(self, stream: ReadStream) -> None:
        """Settles what a stream need not read any more, also while every slot is taken.

        A stream without runs leaves the lane: nothing here keeps its arena.
        """
        stream.give_up(self._index)
        with self._lock:
            if stream in self._streams and not stream.queues.has_runs(self._index):
                self._streams.remove(stream)

    def done(self, transfer: Transfer) -> None:
        """Takes back the slot of a finished transfer."""
        with self._lock:
            self._slots.append(transfer.slot)

    def pump(self) -> None:
        """Issues whatever may be issued now."""
        while True:
            with self._lock:
                transfer = self._next()
            if transfer is None:
                return
            self._issue(self._index, transfer)

    def _next(self) -> Transfer | None:
        """Round robin over the streams; those without runs leave the lane."""
        if not self._slots:
            return None
        for _ in range(len(self._streams)):
            stream = self._streams.popleft()
            run = stream.take(self._index)
            if stream.queues.has_runs(self._index):
                self._streams.append(stream)
            if run is not None:
                return Transfer(stream, run, self._slots.pop())
        return None
