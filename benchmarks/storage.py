"""The store beside its ceilings: fio with O_DIRECT on the same file system, and memcpy.

Everything is measured at the client process. A read counts only when the daemon's own
account of where the bytes came from is the tier that the figure is about.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import fio
from benchmarks.benchmark import Benchmark, BenchmarkError, Settings
from benchmarks.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.fio import FioJob, FioOperation
from benchmarks.fio_sweep import best_job
from benchmarks.interleave import Alternative, Group, Measured, Rounds, interleave, ratios
from benchmarks.memcpy import copy_gb_per_s, populated
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.store_session import ARENA_SPARE_BYTES, GB, ReadTiming, StoreSession
from benchmarks.workload import KIB, MIB, Workload
from kvstored_client import Ack, Order

ORDERS = (Order.TAIL_FIRST, Order.LAYER_FIRST, Order.HEAD_FIRST)
RATIOS: Mapping[str, tuple[str, str]] = {
    **{
        f"read_{order.name.lower()}_vs_fio": (
            f"read_{order.name.lower()}",
            f"fio_beside_{order.name.lower()}",
        )
        for order in ORDERS
    },
    "put_durable_vs_fio": ("put_durable", "fio_write"),
    "dram_hit_vs_memcpy": ("dram_hit", "memcpy"),
}
"""Each figure: whose rate is divided by whose."""

HUGE_PAGE_RATIOS: Mapping[str, tuple[str, str]] = {
    f"read_{order.name.lower()}_vs_fio_huge_pages": (
        f"read_{order.name.lower()}",
        f"fio_huge_pages_{order.name.lower()}",
    )
    for order in ORDERS
}
"""Printed beside the figures: fio with buffers on huge pages, which nobody runs by default
and which is the highest ceiling that was found."""

FIO_DEPTHS = (16, 32)
FIO_JOBS = (1, 2)
FIO_REQUEST_BYTES = (256 * KIB, MIB, 2 * MIB)
"""The size of a slice, the usual one, and the transfers into which the daemon merges slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured. Each of the three parts runs all ``rounds``."""

    workload: Workload
    rounds: Rounds
    fio_depths: tuple[int, ...] = FIO_DEPTHS
    fio_jobs: tuple[int, ...] = FIO_JOBS

    @property
    def device_bytes(self) -> int:
        """Size of each of two devices: in all 3 times the payload and some slabs."""
        return self.workload.payload_bytes * 3 // 2 + 256 * MIB

    @property
    def dram_bytes(self) -> int:
        """All chunks fit, with what is lost at the end of each slab of frames."""
        return self.workload.payload_bytes * 5 // 4 + 128 * MIB

    @property
    def scratch_bytes(self) -> int:
        """Devices, fio's file, the index."""
        return 2 * self.device_bytes + self.workload.payload_bytes + 256 * MIB


FULL = Scale(
    workload=Workload(chunk_count=128, slice_bytes=256 * KIB, layer_count=32),
    rounds=Rounds(count=9, count_min=7, time_limit_s=300.0),
)
QUICK = Scale(
    workload=Workload(chunk_count=32, slice_bytes=256 * KIB, layer_count=32),
    rounds=Rounds(count=7, count_min=7, time_limit_s=60.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all parts share."""

    session: StoreSession
    payload: NDArray[np.uint8]
    fio_read: FioJob
    fio_read_huge_pages: FioJob
    fio_write: FioJob
    run: Callable[[str, list[Group]], dict[str, tuple[float, ...]]]


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Runs the three parts on one daemon; raises BenchmarkError."""
    fio.require_fio()
    generator = settings.random()
    payload = scale.workload.payload(settings.seed)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, scale.scratch_bytes))
        status = stack.enter_context(settings.console.status("preparing"))

        def run(part: str, groups: list[Group]) -> dict[str, tuple[float, ...]]:
            return interleave(
                groups,
                rounds=scale.rounds,
                generator=generator,
                announce=lambda text: status.update(f"{part}: {text}"),
            )

        def sweep(operation: FioOperation, *, huge_pages: bool = False) -> FioJob:
            jobs = fio_candidates(folder / "fio", operation, scale, huge_pages=huge_pages)
            best = best_job(jobs, generator=generator, announce=status.update)
            settings.console.print(f"peer: {best.describe()}")
            return best

        fio.make_file(folder / "fio", scale.workload.payload_bytes)
        peers = {
            "fio_read": sweep(FioOperation.READ),
            "fio_read_huge_pages": sweep(FioOperation.READ, huge_pages=True),
            "fio_write": sweep(FioOperation.WRITE),
        }
        daemon = stack.enter_context(
            DaemonProcess(
                DaemonOptions(
                    folder=folder,
                    device_bytes=scale.device_bytes,
                    dram_bytes=scale.dram_bytes,
                    arena_bytes_max=scale.workload.payload_bytes + ARENA_SPARE_BYTES,
                )
            )
        )
        session = stack.enter_context(StoreSession(daemon, scale.workload, payload))
        bench = Bench(session=session, payload=payload, run=run, **peers)
        return series(cold_reads(bench) | durable_puts(bench) | dram_hits(bench))


def fio_candidates(
    path: Path, operation: FioOperation, scale: Scale, *, huge_pages: bool
) -> list[FioJob]:
    """The settings among which fio's best are looked for."""
    return fio.candidates(
        path,
        operation=operation,
        byte_count=scale.workload.payload_bytes,
        request_bytes=FIO_REQUEST_BYTES,
        depths=scale.fio_depths,
        jobs=scale.fio_jobs,
        engine=fio.best_engine(path),
        huge_pages=huge_pages,
    )


def cold_reads(bench: Bench) -> dict[str, tuple[float, ...]]:
    """Reads in each order after a restart of the daemon, beside fio's read of as many bytes.

    fio's reads wait out a restart too: a disk with burst credit regains it while it idles.
    """
    session = bench.session
    chunks = session.workload.new_chunks("cold")
    session.fill_source()
    session.put(chunks, ack=Ack.DURABLE)

    def prepare() -> None:
        session.restart()
        session.clear_destination()

    def group(order: Order) -> Group:
        name = order.name.lower()

        def read() -> Measured:
            timing = session.read(chunks, order=order)
            require_tier(timing, session.workload.payload_bytes, is_cold=True)
            session.check_destination()
            rate = session.workload.payload_bytes / timing.duration_s / GB
            cpu = timing.cpu_s * GB / session.workload.payload_bytes
            return {f"read_{name}": rate, f"cpu_{name}": cpu}

        def peer() -> Measured:
            result = fio.run_fio(bench.fio_read)
            return {f"fio_beside_{name}": result.gb_per_s, f"fio_cpu_{name}": result.cpu_s_per_gb}

        def peer_on_huge_pages() -> Measured:
            return {f"fio_huge_pages_{name}": fio.run_fio(bench.fio_read_huge_pages).gb_per_s}

        # fio waits out the same restart, because an idle disk answers faster.
        return (
            Alternative(run=read, prepare=prepare),
            Alternative(run=peer, prepare=prepare),
            Alternative(run=peer_on_huge_pages, prepare=prepare),
        )

    return bench.run("cold reads", [group(order) for order in ORDERS])


def durable_puts(bench: Bench) -> dict[str, tuple[float, ...]]:
    """Puts of fresh keys until the durable ack, beside fio's write and sync of as many bytes.

    What a repetition stored is deleted before the next, so that both sides write to
    space that was written before.
    """
    session = bench.session
    session.restart()
    session.fill_source()
    written = 0

    def prepare() -> None:
        nonlocal written
        if written:
            session.delete(session.workload.new_chunks(f"put {written}"))
        written += 1

    def put() -> Measured:
        duration_s = session.put(session.workload.new_chunks(f"put {written}"), ack=Ack.DURABLE)
        return {"put_durable": session.workload.payload_bytes / duration_s / GB}

    def peer() -> Measured:
        return {"fio_write": fio.run_fio(bench.fio_write).gb_per_s}

    return bench.run(
        "durable puts", [(Alternative(run=put, prepare=prepare), Alternative(run=peer))]
    )


def dram_hits(bench: Bench) -> dict[str, tuple[float, ...]]:
    """Reads of chunks that were just put, beside one thread's copy of as many bytes."""
    session = bench.session
    session.restart()
    session.fill_source()
    chunks = session.workload.new_chunks("warm")
    session.put(chunks, ack=Ack.DURABLE)
    destination = populated(session.workload.payload_bytes)

    def hit() -> Measured:
        timing = session.read(chunks, order=Order.HEAD_FIRST)
        require_tier(timing, session.workload.payload_bytes, is_cold=False)
        session.check_destination()
        return {"dram_hit": session.workload.payload_bytes / timing.duration_s / GB}

    def peer() -> Measured:
        return {"memcpy": copy_gb_per_s(bench.payload, destination)}

    group = (Alternative(run=hit, prepare=session.clear_destination), Alternative(run=peer))
    return bench.run("hits in DRAM", [group])


def require_tier(timing: ReadTiming, payload_bytes: int, *, is_cold: bool) -> None:
    """Raises BenchmarkError unless every byte came from the tier that is measured."""
    report = timing.report
    wanted, other = report.device_bytes, report.dram_bytes
    if not is_cold:
        wanted, other = other, wanted
    if wanted < payload_bytes or other:
        tier = "the devices" if is_cold else "DRAM"
        raise BenchmarkError(
            f"{wanted} bytes came from {tier} and {other} from elsewhere, not all "
            f"{payload_bytes}: this would be another figure"
        )


def series(rates: Mapping[str, tuple[float, ...]]) -> tuple[Series, ...]:
    """The figures, and behind them what they were made of."""
    figures = [
        Series(
            key=key,
            unit="ratio",
            samples=ratios(rates[ours], rates[peer]),
            is_figure=key in RATIOS,
        )
        for key, (ours, peer) in {**RATIOS, **HUGE_PAGE_RATIOS}.items()
    ]
    cpu = [
        Series(key=f"{whose}_s_per_gb_read", unit="s/GB", samples=_pooled(rates, whose))
        for whose in ("cpu", "fio_cpu")
    ]
    measured = [
        Series(key=f"{name}_gb_per_s", unit="GB/s", samples=rates[name])
        for name in dict.fromkeys(chain(*RATIOS.values(), *HUGE_PAGE_RATIOS.values()))
    ]
    return *figures, *cpu, *measured


def _pooled(rates: Mapping[str, tuple[float, ...]], prefix: str) -> tuple[float, ...]:
    """Samples of all orders together."""
    return tuple(sample for order in ORDERS for sample in rates[f"{prefix}_{order.name.lower()}"])


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the benchmark at the scale that the settings ask for."""
    return measure(settings, QUICK if settings.quick else FULL)


BENCHMARK = Benchmark(
    name="storage",
    figures=tuple(RATIOS),
    run=run,
)
