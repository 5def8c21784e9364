"""Puts of fresh keys until the durable ack, beside fio's write and sync of as many bytes."""

from benchmarks import fio
from benchmarks.fio import FioOperation
from benchmarks.interleave import Alternative, Measured
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.rates import Rates, lowest, measured, ratio
from benchmarks.storage.space import device_bytes, dram_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import GB, KIB, MIB, Workload, numbered_payload, size_label
from kvstored_client import Ack

SLICE_BYTES = (256 * KIB, MIB)
"""With 32 layers: chunks of 8 and of 32 MiB."""
PEERS = ("fio", "fio_huge_pages", "fio_1mib_16")
"""Those of cold reads."""
FIGURES = ("put_durable_vs_fio",)


class _Putter:
    """Puts one size under a new name each time.

    What was stored is deleted before the next put, so that both sides write to space
    that was written before.
    """

    def __init__(self, session: StoreSession, workload: Workload) -> None:
        self._session = session
        self._workload = workload
        self._put_count = 0

    def name(self) -> str:
        return f"put_durable_{size_label(self._workload.chunk_bytes)}"

    def put(self) -> Measured:
        workload = self._workload
        self._put_count += 1
        duration_s = self._session.put(
            workload, workload.new_chunks(f"put {self._put_count}"), ack=Ack.DURABLE
        )
        return {self.name(): workload.payload_bytes / duration_s / GB}

    def delete(self) -> None:
        if self._put_count:
            self._session.delete(self._workload.new_chunks(f"put {self._put_count}"))


def durable_puts(bench: Bench) -> tuple[Series, ...]:
    """The rates of puts of both sizes of chunk, and of fio."""
    scale = bench.scale
    jobs = {
        "fio": bench.fio_best(FioOperation.WRITE),
        "fio_huge_pages": bench.fio_best(FioOperation.WRITE, huge_pages=True),
        "fio_1mib_16": bench.fio_1mib_16(FioOperation.WRITE),
    }
    workloads = [scale.call_workload(size) for size in SLICE_BYTES]
    payload = numbered_payload(scale.call_bytes, bench.settings.seed)
    with (
        bench.daemon(
            "puts",
            device_bytes=device_bytes(workloads, 2, scale.large_slab_bytes),
            dram_bytes=dram_bytes(workloads, scale.large_slab_bytes),
            arena_bytes=scale.call_bytes,
            slab_bytes=scale.large_slab_bytes,
        ) as daemon,
        StoreSession(daemon, payload, workloads) as session,
    ):
        session.fill_arena()
        putters = [_Putter(session, workload) for workload in workloads]
        ours = [Alternative(run=putter.put, prepare=putter.delete) for putter in putters]
        peers = [_peer(job, peer) for peer, job in jobs.items()]
        rates = bench.run("durable puts", [ours + peers], rounds=scale.rounds)
    return series(rates, [putter.name() for putter in putters])


def _peer(job: fio.FioJob, peer: str) -> Alternative:
    def run() -> Measured:
        return {f"{peer}_write": fio.run_fio(job).gb_per_s}

    return Alternative(run=run)


def series(rates: Rates, names: list[str]) -> tuple[Series, ...]:
    """The figure is that of the size of chunk that came off worse; both are printed."""
    found: list[Series] = []
    for peer in PEERS:
        of_sizes = [ratio(f"{name}_vs_{peer}", rates, name, f"{peer}_write") for name in names]
        found.append(lowest(f"put_durable_vs_{peer}", of_sizes, is_figure=peer == "fio"))
        found += of_sizes
    return (*found, *measured(rates, [*names, *(f"{peer}_write" for peer in PEERS)]))


PART = Part(figures=FIGURES, run=durable_puts)
