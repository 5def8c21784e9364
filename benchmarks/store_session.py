"""One client of one daemon, with an arena that holds the whole workload."""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.benchmark import BenchmarkError
from benchmarks.daemon_process import DaemonProcess
from benchmarks.workload import MIB, Workload
from kvstored_client import Ack, Client, NewChunk, Order, Placement, ReadReport, Region
from kvstored_contract.limits import KEY_BYTES

ARENA_SPARE_BYTES = 16 * MIB
"""Room for the boards of reads."""
CALL_TIMEOUT_MS = 120_000
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTiming:
    """One read of all chunks. ``cpu_s`` are those of the daemon and of this process."""

    duration_s: float
    cpu_s: float
    report: ReadReport


class StoreSession:
    """Puts and reads the workload through the client. Not thread-safe.

    ``payload`` is what every put stores and every read must bring. Each call raises
    BenchmarkError when the store did not do what was asked, StoreError when it failed.
    """

    def __init__(
        self, daemon: DaemonProcess, workload: Workload, payload: NDArray[np.uint8]
    ) -> None:
        self.workload = workload
        self._daemon = daemon
        self._layout = workload.layout
        self._payload = payload
        self._client: Client | None = None
        self._connect()

    def restart(self) -> None:
        """Restarts the daemon: whatever is stored is on the devices only."""
        self._disconnect()
        self._daemon.restart()
        self._connect()

    def fill_source(self) -> None:
        """Brings the payload into the arena, from where puts take it."""
        np.copyto(self._array, self._payload)

    def clear_destination(self) -> None:
        """Zeroes the arena, so that a read has to bring every byte."""
        self._array.fill(0)

    def check_destination(self) -> None:
        """Raises BenchmarkError unless the payload lies in the arena."""
        if not np.array_equal(self._array, self._payload):
            raise BenchmarkError("a read was reported as complete and brought wrong bytes")

    def put(self, chunks: Sequence[NewChunk], *, ack: Ack) -> float:
        """Stores new chunks from the arena; seconds until the ack."""
        start = time.perf_counter()
        report = self._live.put(
            self._layout, chunks, self._placement, ack=ack, timeout_ms=CALL_TIMEOUT_MS
        )
        duration_s = time.perf_counter() - start
        if report.stored_count != len(chunks):
            raise BenchmarkError(f"{report.stored_count} of {len(chunks)} chunks were stored")
        return duration_s

    def read(self, chunks: Sequence[NewChunk], *, order: Order) -> ReadTiming:
        """Reads chunks into the arena, each to where its payload came from."""
        keys = [chunk.key for chunk in chunks]
        start_cpu_s = self._cpu_s()
        start = time.perf_counter()
        with self._live.read(
            self._layout, keys, self._placement, order=order, timeout_ms=CALL_TIMEOUT_MS
        ) as read:
            report = read.wait()
            duration_s = time.perf_counter() - start
        cpu_s = self._cpu_s() - start_cpu_s
        if report.resident_prefix != len(chunks):
            raise BenchmarkError(f"{sum(report.resident)} of {len(chunks)} chunks were read")
        return ReadTiming(duration_s=duration_s, cpu_s=cpu_s, report=report)

    def delete(self, chunks: Sequence[NewChunk]) -> None:
        """Deletes chunks durably."""
        deleted_count = self._live.delete([chunk.key for chunk in chunks])
        if deleted_count != len(chunks):
            raise BenchmarkError(f"{deleted_count} of {len(chunks)} chunks were deleted")

    @property
    def _live(self) -> Client:
        assert self._client is not None
        return self._client

    @property
    def _placement(self) -> Placement:
        return Placement.contiguous(self._region, self._layout)

    @property
    def _array(self) -> NDArray[np.uint8]:
        return self._region.numpy(np.uint8, (self.workload.payload_bytes,))

    def _cpu_s(self) -> float:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return self._daemon.cpu_s() + own.ru_utime + own.ru_stime

    def _connect(self) -> None:
        self._client = Client(
            self._daemon.options.socket,
            arena_bytes=self.workload.payload_bytes + ARENA_SPARE_BYTES,
            name="benchmark",
            strict=True,
        )
        region = self._client.allocate(self.workload.payload_bytes)
        assert region is not None
        self._region: Region = region
        # The first call opens the channel and registers the layout, once in a session.
        self._client.match(self._layout, [bytes(KEY_BYTES)])

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
