"""fio as the peer: what the file system under the devices gives to O_DIRECT."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchmarks.benchmark import BenchmarkError

GB = 1e9
_TIMEOUT_S = 600
_PROBE_BYTES = 1024 * 1024
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Puts fio's buffers on huge pages, as the daemon's own memory is: on a virtual disk
transfers from 4 KiB pages, fio's default, can reach less than half the rate."""


class FioOperation(Enum):
    """What a job does; the values are fio's."""

    READ = "read"
    WRITE = "write"


class FioEngine(Enum):
    """How fio submits; the values are fio's."""

    IO_URING = "io_uring"
    LIBAIO = "libaio"


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """Transfers ``byte_count`` bytes of ``path`` once, in order, past the page cache.

    ``jobs`` threads share the bytes evenly, each with ``depth`` requests of
    ``request_bytes`` in flight. Writes are on media when the job ends.
    """

    path: Path
    operation: FioOperation
    byte_count: int
    request_bytes: int
    depth: int
    jobs: int
    engine: FioEngine
    huge_pages: bool = False

    def __post_init__(self) -> None:
        if self.byte_count % (self.jobs * self.request_bytes):
            raise ValueError(
                f"{self.byte_count} bytes cannot be shared by {self.jobs} jobs in requests of "
                f"{self.request_bytes} bytes"
            )

    def describe(self) -> str:
        """The job in a few words."""
        return (
            f"fio {self.operation.value}, {self.engine.value}, {self.request_bytes // 1024} KiB x "
            f"{self.depth} deep x {self.jobs} jobs{', huge pages' if self.huge_pages else ''}"
        )

    def command(self) -> list[str]:
        """The command line."""
        share_bytes = self.byte_count // self.jobs
        return [
            "fio",
            "--name=peer",
            f"--filename={self.path}",
            f"--rw={self.operation.value}",
            f"--bs={self.request_bytes}",
            f"--size={share_bytes}",
            f"--offset_increment={share_bytes}",
            f"--numjobs={self.jobs}",
            f"--iodepth={self.depth}",
            f"--ioengine={self.engine.value}",
            "--direct=1",
            "--end_fsync=1",
            "--thread",
            "--group_reporting",
            "--output-format=json",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FioResult:
    """What fio measured. ``cpu_s`` are the user and system seconds of its threads."""

    byte_count: int
    duration_s: float
    cpu_s: float

    @property
    def gb_per_s(self) -> float:
        """Rate in 10^9 bytes a second."""
        return self.byte_count / self.duration_s / GB

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds for 10^9 bytes."""
        return self.cpu_s * GB / self.byte_count


def parse_output(output: str, operation: FioOperation) -> FioResult:
    """Reads fio's JSON; raises BenchmarkError when it shows no complete job.

    fio prints notes before the document, for example about its engine.
    """
    try:
        job = json.loads(output[output.index("{") :])["jobs"][0]
        part = job[operation.value]
        result = FioResult(
            byte_count=int(part["io_bytes"]),
            duration_s=part["runtime"] / 1000,
            cpu_s=(job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000,
        )
    except (ValueError, LookupError, TypeError) as error:
        raise BenchmarkError(f"fio's output cannot be understood ({error!r})") from error
    if job.get("error") or not result.byte_count or not result.duration_s:
        raise BenchmarkError(f"fio's {operation.value} job failed with error {job.get('error')}")
    return result


def run_fio(job: FioJob) -> FioResult:
    """Runs one job; raises BenchmarkError."""
    require_fio()
    done = subprocess.run(
        job.command(),
        env={**os.environ, **(_HUGE_PAGES if job.huge_pages else {})},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        cause = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise BenchmarkError(f"{job.describe()} failed: {cause[0] if cause else 'no message'}")
    result = parse_output(done.stdout, job.operation)
    if result.byte_count != job.byte_count:
        raise BenchmarkError(
            f"{job.describe()} moved {result.byte_count} of {job.byte_count} bytes"
        )
    return result


def require_fio() -> None:
    """Raises BenchmarkError when fio is not installed."""
    if shutil.which("fio") is None:
        raise BenchmarkError("fio is not installed; install it with: apt-get install fio")


def make_file(path: Path, byte_count: int) -> None:
    """Reserves a file and really writes it, so that no later job touches new space."""
    job = FioJob(
        path=path,
        operation=FioOperation.WRITE,
        byte_count=byte_count,
        request_bytes=1024 * 1024,
        depth=16,
        jobs=1,
        engine=FioEngine.LIBAIO,
    )
    run_fio(job)


def best_engine(path: Path) -> FioEngine:
    """io_uring where the kernel allows it to fio, else libaio; ``path`` has 1 MiB or more."""
    probe = FioJob(
        path=path,
        operation=FioOperation.READ,
        byte_count=_PROBE_BYTES,
        request_bytes=_PROBE_BYTES,
        depth=1,
        jobs=1,
        engine=FioEngine.IO_URING,
    )
    try:
        run_fio(probe)
    except BenchmarkError:
        return FioEngine.LIBAIO
    return FioEngine.IO_URING


def candidates(
    path: Path,
    *,
    operation: FioOperation,
    byte_count: int,
    request_bytes: Sequence[int],
    depths: Sequence[int],
    jobs: Sequence[int],
    engine: FioEngine,
    huge_pages: bool = False,
) -> list[FioJob]:
    """Every combination, as the candidates of a sweep."""
    return [
        FioJob(
            path=path,
            operation=operation,
            byte_count=byte_count,
            request_bytes=size,
            depth=depth,
            jobs=job_count,
            engine=engine,
            huge_pages=huge_pages,
        )
        for size in request_bytes
        for depth in depths
        for job_count in jobs
    ]
