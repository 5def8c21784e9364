"""A well-behaved client beside a hostile one: what it stored it must read, all the time."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    PutOutcome,
    StateKind,
    StateLayout,
)

LAYOUT = StateLayout(
    model="witness", dtype="float32", layers=(LayerState(StateKind.KV, 256),) * 4, chunk_tokens=64
)
CHUNK_COUNT = 4
STUCK_S = 15.0
"""A read that takes longer is worth a look at what the daemon does: its deadline comes later."""


class Witness:
    """Stores a few chunks and reads them on a thread until the body of ``with`` has ended.

    Leaving the body fails when any read was wrong or missed, or did not end by its deadline, or
    when none was made during it. ``slowest_s`` is what the slowest one took, for a test that runs
    alone. ``on_stuck`` is called while a read takes longer than STUCK_S, once.
    """

    def __init__(
        self, path: Path, *, salt: bytes = b"witness", on_stuck: Callable[[], None] | None = None
    ) -> None:
        self.read_count = 0
        self._on_stuck = on_stuck
        self._waits_for = ""
        self.slowest_s = 0.0
        self._client = Client(path, arena_bytes="1MiB", name="witness", strict=True)
        self._keys = [salt.ljust(31, b".") + bytes([number]) for number in range(CHUNK_COUNT)]
        self._payload = np.random.default_rng(0).bytes(
            Placement.contiguous_bytes(LAYOUT, CHUNK_COUNT)
        )
        self._failure: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness")
        self._watcher = threading.Thread(target=self._watch, name="watcher")

    def put(self) -> None:
        """Stores the chunks durably."""
        region = self._client.allocate(len(self._payload))
        assert region is not None
        with region:
            region.view[:] = self._payload
            report = self._client.put(
                LAYOUT,
                [NewChunk(key=key, token_count=LAYOUT.chunk_tokens) for key in self._keys],
                Placement.contiguous(region, LAYOUT),
                ack=Ack.DURABLE,
            )
        assert report.count(PutOutcome.REJECTED) == 0, report

    def read(self) -> None:
        """Reads the chunks once and compares every byte."""
        began = time.monotonic()
        region = self._client.allocate(len(self._payload))
        assert region is not None
        with region:
            region.view[:] = bytes(len(self._payload))
            self._waits_for = "the answer to its call"
            with self._client.read(
                LAYOUT, self._keys, Placement.contiguous(region, LAYOUT)
            ) as read:
                self._waits_for = "its board"
                report = read.wait()
            assert all(report.resident), report
            assert bytes(region.view) == self._payload, "the witness read wrong bytes"
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.read_count += 1

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.read()
                # Most of the time belongs to the one that it watches.
                time.sleep(0.005)
        except BaseException as error:
            self._failure = error

    def _watch(self) -> None:
        count, since = self.read_count, time.monotonic()
        while self._on_stuck is not None and not self._is_over.wait(1.0):
            if self.read_count != count:
                count, since = self.read_count, time.monotonic()
            elif time.monotonic() - since > STUCK_S:
                print(f"after {STUCK_S} s the witness waits for {self._waits_for}")
                self._on_stuck()
                return

    def __enter__(self) -> Self:
        self.put()
        self.read()
        self.read_count = 0
        self.slowest_s = 0.0
        self._thread.start()
        self._watcher.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # One whole read after the last thing that the hostile client did.
        seen = self.read_count
        while self._thread.is_alive() and self.read_count <= seen + 1:
            time.sleep(0.001)
        self._is_over.set()
        self._thread.join()
        self._watcher.join()
        self._client.close()
        if kind is None and self._failure is not None:
            raise AssertionError("the witness was harmed") from self._failure
