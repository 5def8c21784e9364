"""One client of one daemon, with an arena in which each chunk has the place of its payload."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.benchmark import BenchmarkError
from benchmarks.kit.daemon_process import DaemonProcess
from benchmarks.workload import MIB, Workload
from kvstored_client import Ack, Client, NewChunk, Order, Placement, Read, ReadReport, Region
from kvstored_contract.limits import KEY_BYTES

ARENA_SPARE_BYTES = 16 * MIB
"""Room for the boards of reads."""
CALL_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTiming:
    """One complete read. ``cpu_s`` are those of the daemon and of this process."""

    duration_s: float
    cpu_s: float
    report: ReadReport


class StoreSession:
    """Puts and reads ``workloads`` through the client. Not thread-safe.

    ``payload`` is what every put stores and every read must bring: chunk i of a workload
    has the bytes from ``i * chunk_bytes`` on. Each call raises BenchmarkError when the
    store did not do what was asked, StoreError when it failed.
    """

    def __init__(
        self, daemon: DaemonProcess, payload: NDArray[np.uint8], workloads: Sequence[Workload]
    ) -> None:
        self._daemon = daemon
        self._payload = payload
        self._workloads = workloads
        self._client: Client | None = None
        self._connect()

    def restart(self) -> None:
        """Restarts the daemon: whatever is stored is on the devices only."""
        self._disconnect()
        self._daemon.restart()
        self._connect()

    def fill_arena(self) -> None:
        """Brings the payload into the arena, from where puts take it."""
        np.copyto(self._array, self._payload)

    def clear_destination(self) -> None:
        """Zeroes the arena, so that a read has to bring every byte."""
        self._array.fill(0)

    def check_destination(self, end: int, start: int = 0) -> None:
        """Raises BenchmarkError unless these bytes of the payload lie in the arena."""
        if not np.array_equal(self._array[start:end], self._payload[start:end]):
            raise BenchmarkError("a read was reported as complete and brought wrong bytes")

    def put(self, workload: Workload, chunks: Sequence[NewChunk], *, ack: Ack) -> float:
        """Stores new chunks from the arena; seconds until the ack."""
        placement = self._placement(workload, 0)
        start = time.perf_counter()
        report = self._live.put(
            workload.layout, chunks, placement, ack=ack, timeout_ms=CALL_TIMEOUT_MS
        )
        duration_s = time.perf_counter() - start
        if report.stored_count != len(chunks):
            raise BenchmarkError(f"{report.stored_count} of {len(chunks)} chunks were stored")
        return duration_s

    def start_read(
        self,
        workload: Workload,
        chunks: Sequence[NewChunk],
        *,
        order: Order,
        first: int = 0,
        window_bytes: int = 0,
    ) -> Read:
        """Starts to read chunks; the first of them goes to the place of chunk ``first``."""
        return self._live.read(
            workload.layout,
            [chunk.key for chunk in chunks],
            self._placement(workload, first),
            order=order,
            window_bytes=window_bytes,
            timeout_ms=CALL_TIMEOUT_MS,
        )

    def read(
        self, workload: Workload, chunks: Sequence[NewChunk], *, order: Order, first: int = 0
    ) -> ReadTiming:
        """Reads chunks completely; timed from before the call until the wait has returned."""
        start_cpu_s = self._cpu_s()
        start = time.perf_counter()
        with self.start_read(workload, chunks, order=order, first=first) as read:
            report = read.wait()
            duration_s = time.perf_counter() - start
        cpu_s = self._cpu_s() - start_cpu_s
        if report.resident_prefix != len(chunks):
            raise BenchmarkError(f"{sum(report.resident)} of {len(chunks)} chunks were read")
        return ReadTiming(duration_s=duration_s, cpu_s=cpu_s, report=report)

    def miss(self, workload: Workload, chunk: NewChunk) -> float:
        """Seconds of one call that finds nothing; raises BenchmarkError if it does."""
        started_s = time.perf_counter()
        match = self._live.match(workload.layout, [chunk.key])
        took_s = time.perf_counter() - started_s
        if match.chunk_count:
            raise BenchmarkError("a key that nobody stored was found")
        return took_s

    def delete(self, chunks: Sequence[NewChunk]) -> None:
        """Deletes chunks durably."""
        deleted_count = self._live.delete([chunk.key for chunk in chunks])
        if deleted_count != len(chunks):
            raise BenchmarkError(f"{deleted_count} of {len(chunks)} chunks were deleted")

    @property
    def _live(self) -> Client:
        assert self._client is not None
        return self._client

    def _placement(self, workload: Workload, first: int) -> Placement:
        return Placement(
            regions=(self._region,),
            base=self._region.offset + first * workload.chunk_bytes,
            layer_stride=workload.slice_bytes,
            chunk_stride=workload.chunk_bytes,
        )

    @property
    def _array(self) -> NDArray[np.uint8]:
        return self._region.numpy(np.uint8, self._payload.shape)

    def _cpu_s(self) -> float:
        return self._daemon.cpu_s() + time.process_time()

    def _connect(self) -> None:
        self._client = Client(
            self._daemon.options.socket,
            arena_bytes=self._payload.nbytes + ARENA_SPARE_BYTES,
            name="benchmark",
            strict=True,
        )
        region = self._client.allocate(self._payload.nbytes)
        assert region is not None
        self._region: Region = region
        # The first calls open the channel and register the layouts, once in a session.
        for workload in self._workloads:
            self._client.match(workload.layout, [bytes(KEY_BYTES)])

    def _disconnect(self) -> None:
        if self._client is not None:
            self._region.release()
            self._client.close()
            self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._disconnect()
