"""How fast the scratch folder reads past the page cache: what throttled rates are possible."""

import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.benchmark import BenchmarkError

REQUEST_BYTES = 1 << 22
REQUESTS = 64
THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRates:
    """Bytes per second with several requests at a time."""

    read_bytes_per_s: float
    write_bytes_per_s: float


def folder_rates(folder: Path, *, requests: int = REQUESTS) -> FolderRates:
    """Writes a file and reads it back; raises BenchmarkError where there is no direct I/O."""
    path = folder / "rates"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    except OSError as error:
        raise BenchmarkError(
            f"{folder} lies on a file system without direct I/O ({error.strerror}); name another "
            "folder with --folder"
        ) from error
    try:
        write_s = _seconds(lambda memory, at: os.pwrite(descriptor, memory, at), requests)
        os.fsync(descriptor)
        read_s = _seconds(lambda memory, at: os.preadv(descriptor, [memory], at), requests)
    finally:
        os.close(descriptor)
        path.unlink()
    byte_count = requests * REQUEST_BYTES
    return FolderRates(read_bytes_per_s=byte_count / read_s, write_bytes_per_s=byte_count / write_s)


def _seconds(move: Callable[[mmap.mmap, int], int], requests: int) -> float:
    def work(number: int) -> None:
        with mmap.mmap(-1, REQUEST_BYTES) as memory:
            memory[:1] = b"1"
            move(memory, number * REQUEST_BYTES)

    with ThreadPoolExecutor(THREADS) as executor:
        started_s = time.perf_counter()
        list(executor.map(work, range(requests)))
        return time.perf_counter() - started_s
