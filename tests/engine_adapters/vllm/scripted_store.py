"""A store whose reads bring what a test says, when it says so."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np

from kvstored_client import (
    NewChunk,
    Placement,
    PutOutcome,
    PutReport,
    PutResult,
    ReadReport,
    Reason,
    Region,
    StateLayout,
)
from kvstored_client.free_space import FreeSpace
from tests.support.waiting import PATIENCE_S

ARENA_BYTES = 1 << 20


class ScriptedRead:
    """Chunks arrive by ``bring``; the rest is settled by ``end``."""

    def __init__(self, bring: Callable[[int], None], chunk_count: int) -> None:
        self._bring = bring
        self.resident = [False] * chunk_count
        self.pointer = 0
        self.is_cancelled = False
        self.is_closed = False
        self.finished = False

    def bring(self, *chunks: int) -> None:
        for chunk in chunks:
            self._bring(chunk)
            self.resident[chunk] = True

    def end(self) -> None:
        self.finished = True

    def report(self) -> ReadReport:
        return ReadReport(
            resident=tuple(self.resident),
            resident_prefix=0,
            device_bytes=100 * sum(self.resident),
            dram_bytes=0,
            finished=self.finished,
        )

    def advance(self, pointer: int) -> None:
        self.pointer = pointer

    def cancel(self) -> None:
        self.is_cancelled = True
        self.finished = True

    def close(self) -> None:
        assert self.finished, "a read that runs is not closed: that would wait for it"
        self.is_closed = True


class ScriptedClient:
    """The verbs that a load uses. ``reads`` are those that were asked for."""

    def __init__(self) -> None:
        self.epoch = 1
        self.reads: list[ScriptedRead] = []
        self.is_full = False
        self._memory = memoryview(bytearray(ARENA_BYTES))
        self._free = FreeSpace(ARENA_BYTES)

    @property
    def free_bytes(self) -> int:
        return self._free.free_bytes

    def allocate(self, byte_count: int, *, connects: bool = True) -> Region | None:
        assert not connects, "the engine's threads never wait for a connection"
        offset = None if self.is_full else self._free.allocate(byte_count)
        if offset is None:
            return None
        return Region(
            self._memory[offset : offset + byte_count],
            arena=self,
            offset=offset,
            is_alive=lambda: True,
            release=self._free.release,
        )

    def read(
        self, layout: StateLayout, keys: Sequence[bytes], destination: Placement, **_: Any
    ) -> ScriptedRead:
        """Each slice is filled with the first byte of its key, plus its layer."""

        def bring(chunk: int) -> None:
            for layer in range(layout.layer_count):
                first = (
                    destination.base
                    + layer * destination.layer_stride
                    + chunk * destination.chunk_stride
                )
                piece = np.frombuffer(self._memory, np.uint8)[
                    first : first + layout.slice_bytes(layer)
                ]
                piece.fill((keys[chunk][0] + layer) % 256)

        read = ScriptedRead(bring, len(keys))
        self.reads.append(read)
        return read


class HeldPuts(ScriptedClient):
    """Puts are answered when ``goes_on`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.outcome = PutOutcome.STORED

    def available(self) -> bool:
        return bool(self.epoch)

    def put(self, layout: StateLayout, chunks: Sequence[NewChunk], *_: Any, **__: Any) -> PutReport:
        assert self.goes_on.wait(PATIENCE_S)
        return PutReport((PutResult(self.outcome, Reason.UNSPECIFIED),) * len(chunks))


class AtOnce(Executor):
    """Runs what is submitted before it returns."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(task(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future
