"""A client in a process of its own: one JSON object a line in, one a line out.

A request is ``{"verb": ..., "arguments": {...}}``, a reply ``{"result": ...}`` or
``{"error": sentence}``. Moments are those of the monotonic clock, which all processes of
a machine share.
"""

import json
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.benchmark import BenchmarkError
from benchmarks.storage.evidence import Tier, require_tier
from benchmarks.store_session import ARENA_SPARE_BYTES, CALL_TIMEOUT_MS
from benchmarks.workload import Workload, numbered_payload
from kvstored_client import Ack, Client, NewChunk, Order, Placement, Region, StoreError
from kvstored_contract.limits import KEY_BYTES

POINT_INTERVAL_S = 0.05
Points = list[tuple[float, float]]


class Worker:
    """One client with an arena for one sequence of ``workload``. Not thread-safe."""

    def __init__(self, workload: Workload, seed: int, is_stopped: Callable[[], bool]) -> None:
        self._workload = workload
        self._payload = numbered_payload(workload.payload_bytes, seed)
        self._is_stopped = is_stopped
        self._client: Client | None = None
        self._region: Region | None = None

    def connect(self, socket: str) -> None:
        """Begins a session with a daemon that was restarted."""
        self.close()
        self._client = Client(
            socket,
            arena_bytes=self._workload.payload_bytes + ARENA_SPARE_BYTES,
            name="benchmark",
            strict=True,
        )
        self._region = self._client.allocate(self._workload.payload_bytes)
        self._client.match(self._workload.layout, [bytes(KEY_BYTES)])

    def read(self, names: list[str], start: float) -> Points:
        """Reads sequences one after the other from ``start`` on; how the bytes grew."""
        sequences = [self._workload.new_chunks(name) for name in names]
        wait_until(start)
        points = [(time.monotonic(), 0.0)]
        for chunks in sequences:
            self._wipe()
            self._read_one(chunks, points)
        if not np.array_equal(self._array, self._payload):
            raise BenchmarkError("a read was reported as complete and brought wrong bytes")
        return points

    def put(self, name: str, start: float) -> Points:
        """Puts durably, deleting what it put before, until it is stopped; how the bytes grew."""
        np.copyto(self._array, self._payload)
        wait_until(start)
        points = [(time.monotonic(), 0.0)]
        previous: list[NewChunk] = []
        while not self._is_stopped():
            chunks = self._workload.new_chunks(f"{name} {len(points)}")
            report = self._live.put(
                self._workload.layout,
                chunks,
                self._placement,
                ack=Ack.DURABLE,
                timeout_ms=CALL_TIMEOUT_MS,
            )
            if report.stored_count != len(chunks):
                raise BenchmarkError(f"{report.stored_count} of {len(chunks)} chunks were stored")
            points.append((time.monotonic(), points[-1][1] + self._workload.payload_bytes))
            self._delete(previous)
            previous = chunks
        self._delete(previous)
        # It ran until here, also where it stopped after its last put.
        return [*points, (time.monotonic(), points[-1][1])]

    def close(self) -> None:
        """Ends the session."""
        if self._client is not None and self._region is not None:
            self._region.release()
            self._client.close()
        self._client = self._region = None

    def _read_one(self, chunks: list[NewChunk], points: Points) -> None:
        before_bytes = points[-1][1]
        with self._live.read(
            self._workload.layout,
            [chunk.key for chunk in chunks],
            self._placement,
            order=Order.TAIL_FIRST,
            timeout_ms=CALL_TIMEOUT_MS,
        ) as read:
            finished = False
            while not finished:
                report = read.wait(POINT_INTERVAL_S)
                points.append((time.monotonic(), before_bytes + report.device_bytes))
                finished = report.finished
        if report.resident_prefix != len(chunks):
            raise BenchmarkError(f"{sum(report.resident)} of {len(chunks)} chunks were read")
        require_tier(report, self._workload.payload_bytes, Tier.DEVICES)

    def _wipe(self) -> None:
        """Zeroes the number of every slice, so that a read has to bring each."""
        self._array.reshape(-1, self._workload.slice_bytes)[:, :8] = 0

    def _delete(self, chunks: list[NewChunk]) -> None:
        self._live.delete([chunk.key for chunk in chunks])

    @property
    def _live(self) -> Client:
        assert self._client is not None
        return self._client

    @property
    def _placement(self) -> Placement:
        assert self._region is not None
        return Placement.contiguous(self._region, self._workload.layout)

    @property
    def _array(self) -> NDArray[np.uint8]:
        assert self._region is not None
        return self._region.numpy(np.uint8, self._payload.shape)


def wait_until(moment: float) -> None:
    """Sleeps until ``moment``; raises BenchmarkError when that has passed already."""
    remaining_s = moment - time.monotonic()
    if remaining_s < 0:
        raise BenchmarkError(f"a client was ready {-remaining_s:.1f} s after the common start")
    time.sleep(remaining_s)


def incoming() -> SimpleQueue[str]:
    """The lines of the input as they come; the last is empty."""
    lines: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        while line := sys.stdin.readline():
            lines.put(line)
        lines.put("")

    Thread(target=listen, daemon=True).start()
    return lines


def answer(verbs: dict[str, Callable[..., Any]], line: str) -> dict[str, Any]:
    """Carries out one request."""
    request = json.loads(line)
    try:
        return {"result": verbs[request["verb"]](**request["arguments"])}
    except (BenchmarkError, StoreError) as error:
        return {"error": str(error)}


def main() -> None:
    """Serves until its input ends; the first line is the workload and the seed."""
    lines = incoming()
    first = json.loads(lines.get())
    # Whatever comes while it puts means to stop.
    worker = Worker(Workload(**first["workload"]), first["seed"], lambda: not lines.empty())
    verbs: dict[str, Callable[..., Any]] = {
        "connect": worker.connect,
        "read": worker.read,
        "put": worker.put,
        "stop": lambda: None,
        "close": worker.close,
    }
    while line := lines.get():
        print(json.dumps(answer(verbs, line)), flush=True)
    worker.close()


if __name__ == "__main__":
    main()
