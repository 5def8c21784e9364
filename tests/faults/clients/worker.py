"""One well-behaved client process: ``python -m tests.faults.clients.worker SOCKET NUMBER``.

Says "ready" when its chunks are stored. Then obeys lines on its standard input: ``run``,
``count`` (answered with the number of its operations so far), ``idle`` (answered when the
operation in progress is over) and ``end``, which it answers with every operation that it made
as JSON: kind, begin on the monotonic clock, seconds.
"""

import json
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    PutOutcome,
    Region,
    StateKind,
    StateLayout,
)

LAYOUT = StateLayout(
    model="worker", dtype="float32", layers=(LayerState(StateKind.KV, 256),) * 4, chunk_tokens=64
)
CHUNK_BYTES = Placement.contiguous_bytes(LAYOUT, 1)
CHUNK_COUNT = 32
READ_CHUNKS = 8
READS_TO_A_PUT = 8


def key_of(worker: int, number: int) -> bytes:
    """The key of a worker's chunk."""
    return worker.to_bytes(16, "big") + number.to_bytes(16, "big")


def payload_of(worker: int, number: int) -> bytes:
    """Its bytes."""
    return np.random.default_rng([worker, number]).bytes(CHUNK_BYTES)


class Worker:
    """Reads its own chunks at random, puts a new one now and then, and compares every byte."""

    def __init__(self, path: Path, number: int) -> None:
        self.operations: list[tuple[str, float, float]] = []
        self._number = number
        self._source = random.Random(number)
        self._client = Client(path, arena_bytes="2MiB", name=f"worker {number}", strict=True)
        self._payloads = [payload_of(number, chunk) for chunk in range(CHUNK_COUNT)]
        region = self._client.allocate(CHUNK_BYTES * READ_CHUNKS)
        assert region is not None
        self._region: Region = region
        self._put_count = 0
        for chunk, payload in enumerate(self._payloads):
            self._put(chunk, payload, ack=Ack.DURABLE)

    def step(self) -> None:
        """One operation, noted with its time; fails when the store was wrong or missed."""
        began = time.monotonic()
        is_put = len(self.operations) % READS_TO_A_PUT == 0
        if is_put:
            self._put_count += 1
            number = CHUNK_COUNT + self._put_count
            self._put(number, self._payloads[number % CHUNK_COUNT], ack=Ack.STAGED)
        else:
            self._read()
        self.operations.append(("put" if is_put else "read", began, time.monotonic() - began))

    def _put(self, number: int, payload: bytes, *, ack: Ack) -> None:
        self._region.view[:CHUNK_BYTES] = payload
        chunk = NewChunk(
            key=key_of(self._number, number), token_count=LAYOUT.chunk_tokens, stripe=number
        )
        placement = Placement.contiguous(self._region, LAYOUT)
        report = self._client.put(LAYOUT, [chunk], placement, ack=ack)
        assert report.count(PutOutcome.REJECTED) == 0, report

    def _read(self) -> None:
        chosen = self._source.sample(range(CHUNK_COUNT), READ_CHUNKS)
        keys = [key_of(self._number, chunk) for chunk in chosen]
        placement = Placement.contiguous(self._region, LAYOUT)
        with self._client.read(LAYOUT, keys, placement) as read:
            report = read.wait()
        assert all(report.resident), report
        for place, chunk in enumerate(chosen):
            found = self._region.view[place * CHUNK_BYTES :][:CHUNK_BYTES]
            assert found == self._payloads[chunk], "the worker read wrong bytes"


def tell(text: str) -> None:
    """One line for the parent."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Obeys until the command to end."""
    worker = Worker(Path(sys.argv[1]), int(sys.argv[2]))
    tell("ready")
    is_running, is_over = threading.Event(), threading.Event()
    step_lock = threading.Lock()

    def obey() -> None:
        for line in sys.stdin:
            command = line.strip()
            if command == "run":
                is_running.set()
            elif command == "count":
                tell(str(len(worker.operations)))
            else:
                is_running.clear()
                with step_lock:
                    tell("idle")
            if command == "end":
                break
        is_over.set()
        is_running.set()

    threading.Thread(target=obey, daemon=True).start()
    while not is_over.is_set():
        is_running.wait()
        with step_lock:
            if is_running.is_set() and not is_over.is_set():
                worker.step()
    tell(json.dumps(worker.operations))


if __name__ == "__main__":
    main()
