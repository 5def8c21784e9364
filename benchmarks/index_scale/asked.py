"""What a daemon with many chunks is asked, and how much memory it has then."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.benchmark import BenchmarkError
from benchmarks.index_scale.fabric import LAYOUT, SLICE_BYTES
from benchmarks.kit.daemon_process import DaemonProcess
from benchmarks.workload import GIB, KIB, MIB
from kvstored_client import Client, NewChunk, Placement, PutOutcome

MATCH_KEYS = 256
LEASE_MS = 60_000
_ARENA_BYTES = 4 * MIB
_SEQUENCES_WAIT_S, _LOOK_S = 600.0, 0.05
_PERCENTILE = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """So many matches of ``MATCH_KEYS`` random stored keys after each start, and with a lease.

    A match of one key follows each: what the call costs at that moment.

    A match does not touch the index. ``put_count`` puts of as many chunks that are stored
    already look each up there, so that the daemon has the memory that serving costs.
    """

    match_count: int
    leased_count: int
    put_count: int

    def client(self, daemon: DaemonProcess) -> Client:
        """A client whose channel is open and whose layout is registered."""
        client = Client(
            daemon.options.socket, arena_bytes=_ARENA_BYTES, name="benchmark", strict=True
        )
        client.match(LAYOUT, [bytes(32)])
        return client

    def wait_for_sequences(self, daemon: DaemonProcess, sequence_count: int) -> None:
        """Waits until the daemon has put the chunks of all sequences together since its start.

        Raises BenchmarkError when that takes too long.
        """
        end = time.monotonic() + _SEQUENCES_WAIT_S
        with self.client(daemon) as client:
            while client.admin.stats().counters["sequences_put_together"] < sequence_count:
                if time.monotonic() > end:
                    raise BenchmarkError("the daemon does not put sequences together")
                time.sleep(_LOOK_S)

    def ask(
        self,
        daemon: DaemonProcess,
        keys: NDArray[np.uint8],
        generator: random.Random,
        samples: dict[str, list[float]],
    ) -> None:
        """Adds a sample of each latency, and of memory before and after all calls.

        Raises BenchmarkError when a stored key is not found.
        """
        samples["rss_open_gib"].append(resident_gib(daemon.pid))
        with self.client(daemon) as client:
            plain, single = [], []
            for _ in range(self.match_count):
                plain.append(match_ms(client, keys, generator, None))
                single.append(match_ms(client, keys, generator, None, key_count=1))
            leased = [match_ms(client, keys, generator, LEASE_MS) for _ in range(self.leased_count)]
            for _ in range(self.put_count):
                put_again(client, keys, generator)
        samples["match256_median_ms"].append(float(np.median(plain)))
        samples["match256_p99_ms"].append(float(np.percentile(plain, _PERCENTILE)))
        samples["match1_median_ms"].append(float(np.median(single)))
        samples["match1_p99_ms"].append(float(np.percentile(single, _PERCENTILE)))
        samples["match256_leased_p99_ms"].append(float(np.percentile(leased, _PERCENTILE)))
        samples["rss_asked_gib"].append(resident_gib(daemon.pid))
        samples["rss_gib"].append(max(samples["rss_open_gib"][-1], samples["rss_asked_gib"][-1]))


def chosen(keys: NDArray[np.uint8], generator: random.Random, key_count: int) -> list[bytes]:
    """Keys at random; one may come twice."""
    return [keys[row].tobytes() for row in generator.choices(range(len(keys)), k=key_count)]


def match_ms(
    client: Client,
    keys: NDArray[np.uint8],
    generator: random.Random,
    lease_ms: int | None,
    *,
    key_count: int = MATCH_KEYS,
) -> float:
    """Time of one match of random stored keys; raises BenchmarkError when one is missing."""
    asked = chosen(keys, generator, key_count)
    start = time.perf_counter()
    match = client.match(LAYOUT, asked, lease_ms=lease_ms or 0)
    duration_ms = (time.perf_counter() - start) * 1000
    if match.lease is not None:
        match.lease.release()
    if match.chunk_count != key_count:
        raise BenchmarkError(f"{match.chunk_count} of {key_count} stored keys were matched")
    return duration_ms


def put_again(client: Client, keys: NDArray[np.uint8], generator: random.Random) -> None:
    """Puts chunks that are stored; raises BenchmarkError when one is taken for new."""
    chunks = [
        NewChunk(key=key, parent_key=b"", token_count=LAYOUT.chunk_tokens)
        for key in dict.fromkeys(chosen(keys, generator, MATCH_KEYS))
    ]
    region = client.allocate(len(chunks) * SLICE_BYTES)
    assert region is not None
    with region:
        report = client.put(LAYOUT, chunks, Placement.contiguous(region, LAYOUT))
    if report.count(PutOutcome.EXISTED) != len(chunks):
        raise BenchmarkError("a stored chunk was taken for a new one")


def check_stored(asked: Asked, daemon: DaemonProcess, keys: NDArray[np.uint8]) -> None:
    """Raises BenchmarkError unless every key is found."""
    with asked.client(daemon) as client:
        for start in range(0, len(keys), MATCH_KEYS):
            wanted = [key.tobytes() for key in keys[start : start + MATCH_KEYS]]
            found = client.match(LAYOUT, wanted).chunk_count
            if found != len(wanted):
                raise BenchmarkError(f"chunk {start + found} is not in the rebuilt index")


def timed(call: Callable[[], None]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def resident_gib(pid: int) -> float:
    """Resident memory of a process, file pages that it has mapped included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * KIB / GIB
    raise BenchmarkError(f"the memory of process {pid} is not known")
