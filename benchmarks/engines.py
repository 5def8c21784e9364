"""The I/O engines beside fio: what a transfer costs before the store adds anything.

Each alternative reads the same file once in requests of one size and sums every 256 KiB,
as a verified read does. It lands in an arena directly, or in private memory from where
it is copied to the arena; the arena lies on huge pages or on pages of 4 KiB.
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Event, Lock

from benchmarks import fio
from benchmarks.benchmark import Benchmark, BenchmarkError, Settings
from benchmarks.fio import FioEngine, FioJob, FioOperation
from benchmarks.huge_pages import huge_pages
from benchmarks.interleave import Alternative, Measured, Rounds, interleave, ratios
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.workload import KIB, MIB
from kvstored.format.checksum import checksum
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.file_device import FileDevice
from kvstored.io.memory import AlignedMemory
from kvstored.io.open_engine import EngineKind, open_engine
from kvstored.server.held.arena import Arena
from kvstored.store.read.fragments import copy
from kvstored_contract.limits import ALIGNMENT_BYTES

GB = 1e9
DEPTH = 8
SUMMED_BYTES = 256 * KIB
REQUEST_BYTES = (512 * KIB, 2 * MIB)
"""What layer-first reads and all others merge their slices into."""


class Landing(Enum):
    """Where transfers land."""

    ARENA = "direct"
    PRIVATE = "copied"


FIGURES = (
    ("io_uring_vs_threads_direct", Landing.ARENA, "gb_per_s"),
    ("io_uring_vs_threads_copied", Landing.PRIVATE, "gb_per_s"),
    ("io_uring_cpu_vs_threads_direct", Landing.ARENA, "cpu_s_per_gb"),
    ("io_uring_cpu_vs_threads_copied", Landing.PRIVATE, "cpu_s_per_gb"),
)
"""Key, landing and quantity of each figure: the largest requests into pages of 4 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many bytes are read in each repetition, and how often."""

    byte_count: int
    rounds: Rounds


FULL = Scale(byte_count=512 * MIB, rounds=Rounds(count=9, count_min=7, time_limit_s=240.0))
QUICK = Scale(byte_count=128 * MIB, rounds=Rounds(count=7, count_min=7, time_limit_s=60.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to read: all combinations are measured."""

    kind: EngineKind
    landing: Landing
    is_arena_huge: bool
    request_bytes: int

    @property
    def key(self) -> str:
        """Name of the way in series."""
        pages = "huge" if self.is_arena_huge else "4kib"
        size = f"{self.request_bytes // KIB}kib"
        return f"{self.kind.value}_{self.landing.value}_{pages}_{size}"


class Reading:
    """One pass over the file with ``DEPTH`` requests in flight."""

    def __init__(
        self, engine: IoEngine, way: Way, *, arena: memoryview, private: memoryview, end: int
    ) -> None:
        self._engine = engine
        self._way = way
        self._arena = arena[:end]
        self._private = private
        self._offsets = iter(range(0, end, way.request_bytes))
        self._lock = Lock()
        self._in_flight = 0
        self._error: DeviceError | None = None
        self._over = Event()

    def run(self) -> None:
        """Reads everything; raises BenchmarkError."""
        for slot in range(DEPTH):
            self._issue(slot)
        self._over.wait()
        if self._error is not None:
            raise BenchmarkError(f"the pass failed: {self._error}")

    def _issue(self, slot: int) -> None:
        with self._lock:
            offset = next(self._offsets, None)
            self._in_flight += offset is not None
            if offset is None:
                if self._in_flight == 0:
                    self._over.set()
                return
        size = self._way.request_bytes
        goal = self._arena[offset : offset + size]
        landed = goal
        if self._way.landing is Landing.PRIVATE:
            landed = self._private[slot * size : (slot + 1) * size]

        def done(error: DeviceError | None) -> None:
            self._error = self._error or error
            for start in range(0, size, SUMMED_BYTES):
                checksum(landed[start : start + SUMMED_BYTES])
            if landed is not goal:
                copy(goal, landed)
            with self._lock:
                self._in_flight -= 1
            self._issue(slot)

        self._engine.submit(
            IoRequest(
                device_index=0,
                operation=Operation.READ,
                buffers=(landed,),
                offset=offset,
                done=done,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all ways share. ``arenas`` by whether they lie on huge pages."""

    device: FileDevice
    arenas: dict[bool, Arena]
    private: memoryview
    byte_count: int


def ways(arenas: dict[bool, Arena]) -> Iterator[Way]:
    """All combinations that this machine offers."""
    for kind, landing, is_huge, size in itertools.product(
        (EngineKind.IO_URING, EngineKind.THREADS), Landing, arenas, REQUEST_BYTES
    ):
        yield Way(kind=kind, landing=landing, is_arena_huge=is_huge, request_bytes=size)


def alternative(bench: Bench, way: Way) -> Alternative:
    """Reads the file in one way."""

    def read() -> Measured:
        engine = open_engine([bench.device], kind=way.kind, depth=DEPTH)
        try:
            start_cpu_s, start_s = time.process_time(), time.perf_counter()
            Reading(
                engine,
                way,
                arena=bench.arenas[way.is_arena_huge].view,
                private=bench.private,
                end=bench.byte_count,
            ).run()
            duration_s = time.perf_counter() - start_s
            cpu_s = time.process_time() - start_cpu_s
        finally:
            engine.close()
        return {
            f"{way.key}_gb_per_s": bench.byte_count / duration_s / GB,
            f"{way.key}_cpu_s_per_gb": cpu_s * GB / bench.byte_count,
        }

    return Alternative(run=read)


def peer(path: Path, scale: Scale, size: int, *, on_huge_pages: bool) -> Alternative:
    """The same reads by fio on io_uring, as many requests in flight."""
    job = FioJob(
        path=path,
        operation=FioOperation.READ,
        byte_count=scale.byte_count,
        request_bytes=size,
        depth=DEPTH,
        jobs=1,
        engine=FioEngine.IO_URING,
        huge_pages=on_huge_pages,
    )
    key = f"fio_{'huge' if on_huge_pages else '4kib'}_{size // KIB}kib"

    def read() -> Measured:
        result = fio.run_fio(job)
        return {f"{key}_gb_per_s": result.gb_per_s, f"{key}_cpu_s_per_gb": result.cpu_s_per_gb}

    return Alternative(run=read)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Reads in every way, interleaved; raises BenchmarkError."""
    fio.require_fio()
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, scale.byte_count))
        status = stack.enter_context(settings.console.status("preparing"))
        path = folder / "file"
        fio.make_file(path, scale.byte_count)
        device = FileDevice.open(path)
        stack.callback(device.close)
        bench = Bench(
            device=device,
            arenas=arenas_on(stack, scale.byte_count),
            private=AlignedMemory(DEPTH * max(REQUEST_BYTES)).view,
            byte_count=scale.byte_count,
        )
        alternatives = [alternative(bench, way) for way in ways(bench.arenas)]
        alternatives += [
            peer(path, scale, size, on_huge_pages=on_huge_pages)
            for size in REQUEST_BYTES
            for on_huge_pages in (False, True)
        ]
        samples = interleave(
            [alternatives],
            rounds=scale.rounds,
            generator=settings.random(),
            announce=status.update,
        )
    return series(samples)


def arenas_on(stack: ExitStack, byte_count: int) -> dict[bool, Arena]:
    """An arena on pages of 4 KiB, and one on huge pages where the system grants them."""
    stack.enter_context(huge_pages(byte_count))
    found = [
        Arena(byte_count + ALIGNMENT_BYTES, huge_pages=True),
        Arena(byte_count, huge_pages=True),
    ]
    for arena in found:
        stack.callback(arena.close)
    return {arena.is_on_huge_pages: arena for arena in reversed(found)}


def series(samples: Mapping[str, tuple[float, ...]]) -> tuple[Series, ...]:
    """The figures, and behind them every rate and every cost."""
    figures = []
    for key, landing, quantity in FIGURES:
        ours, theirs = (
            Way(kind=kind, landing=landing, is_arena_huge=False, request_bytes=max(REQUEST_BYTES))
            for kind in (EngineKind.IO_URING, EngineKind.THREADS)
        )
        figures.append(
            Series(
                key=key,
                unit="ratio",
                samples=ratios(
                    samples[f"{ours.key}_{quantity}"], samples[f"{theirs.key}_{quantity}"]
                ),
                is_figure=True,
            )
        )
    measured = [
        Series(key=key, unit="GB/s" if key.endswith("gb_per_s") else "s/GB", samples=values)
        for key, values in sorted(samples.items())
    ]
    return *figures, *measured


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the benchmark at the scale that the settings ask for."""
    return measure(settings, QUICK if settings.quick else FULL)


BENCHMARK = Benchmark(name="engines", figures=tuple(key for key, *_ in FIGURES), run=run)
