"""Reads from the devices in each order, beside fio's reads of as many bytes.

Every round starts with a restart of the daemon. Each order and each size of slice has a
sequence of its own: a chunk that was read before would begin to move into DRAM.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from benchmarks import fio
from benchmarks.fio import FioOperation
from benchmarks.interleave import Alternative, Group, Measured
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.evidence import Tier, require_tier
from benchmarks.storage.rates import Rates, highest, lowest, measured, ratio
from benchmarks.storage.space import device_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import GB, KIB, MIB, Workload, numbered_payload, size_label
from kvstored_client import Ack, NewChunk, Order

SLICE_BYTES = (256 * KIB, MIB)
ORDERS = {"tail_first": Order.TAIL_FIRST, "layer_first": Order.LAYER_FIRST}
ORDERS["head_first"] = Order.HEAD_FIRST
PEERS = ("fio", "fio_huge_pages", "fio_1mib_16")
"""fio at its best, the same with its buffers on huge pages (which nobody runs by default
and which is the highest ceiling that was found), and the unit in which others publish."""

FIGURES = (*(f"read_{order}_vs_fio" for order in ORDERS), "cpu_s_per_gb_read")

Sequences = Mapping[tuple[str, int], list[NewChunk]]


def cold_reads(bench: Bench) -> tuple[Series, ...]:
    """The rates of all orders, sizes and peers, and the CPU time of both sides."""
    scale = bench.scale
    jobs = {
        "fio": bench.fio_best(FioOperation.READ),
        "fio_huge_pages": bench.fio_best(FioOperation.READ, huge_pages=True),
        "fio_1mib_16": bench.fio_1mib_16(FioOperation.READ),
    }
    workloads = {size: scale.call_workload(size) for size in SLICE_BYTES}
    stored = [workloads[size] for size in SLICE_BYTES for _ in ORDERS]
    payload = numbered_payload(scale.call_bytes, bench.settings.seed)
    with (
        bench.daemon(
            "cold",
            device_bytes=device_bytes(stored, 2, scale.large_slab_bytes),
            dram_bytes=2 * scale.large_slab_bytes,
            arena_bytes=scale.call_bytes,
            slab_bytes=scale.large_slab_bytes,
        ) as daemon,
        StoreSession(daemon, payload, tuple(workloads.values())) as session,
    ):
        sequences: dict[tuple[str, int], list[NewChunk]] = {}
        session.fill_arena()
        for size, workload in workloads.items():
            for order in ORDERS:
                sequences[order, size] = workload.new_chunks(f"cold {order}")
                session.put(workload, sequences[order, size], ack=Ack.DURABLE)
        rates = bench.run(
            "cold reads",
            [
                [
                    *_reads(session, workloads, sequences, order),
                    *(_peer(job, peer, order) for peer, job in jobs.items()),
                ]
                for order in ORDERS
            ],
            rounds=scale.rounds,
            prepare=session.restart,
        )
    return series(rates)


def _reads(
    session: StoreSession, workloads: Mapping[int, Workload], sequences: Sequences, order: str
) -> Group:
    def read_of(size: int) -> Alternative:
        workload, chunks = workloads[size], sequences[order, size]
        name = f"{order}_{size_label(size)}"

        def read() -> Measured:
            timing = session.read(workload, chunks, order=ORDERS[order])
            require_tier(timing.report, workload.payload_bytes, Tier.DEVICES)
            session.check_destination(workload.payload_bytes)
            gigabytes = workload.payload_bytes / GB
            return {
                f"read_{name}": gigabytes / timing.duration_s,
                f"cpu_{name}": timing.cpu_s / gigabytes,
            }

        return Alternative(run=read, prepare=session.clear_destination)

    return [read_of(size) for size in SLICE_BYTES]


def _peer(job: fio.FioJob, peer: str, order: str) -> Alternative:
    def run() -> Measured:
        result = fio.run_fio(job)
        return {
            f"{peer}_beside_{order}": result.gb_per_s,
            f"{peer}_cpu_{order}": result.cpu_s_per_gb,
        }

    return Alternative(run=run)


def series(rates: Rates) -> tuple[Series, ...]:
    """The figures are those of the size of slice that came off worse; both are printed."""
    labels = [size_label(size) for size in SLICE_BYTES]
    found: list[Series] = []
    for order in ORDERS:
        for peer in PEERS:
            of_sizes = [
                ratio(
                    f"read_{order}_{label}_vs_{peer}",
                    rates,
                    f"read_{order}_{label}",
                    f"{peer}_beside_{order}",
                )
                for label in labels
            ]
            found.append(lowest(f"read_{order}_vs_{peer}", of_sizes, is_figure=peer == "fio"))
            found += of_sizes
    of_sizes = [
        _cpu(f"cpu_s_per_gb_read_{label}", rates, [f"cpu_{order}_{label}" for order in ORDERS])
        for label in labels
    ]
    found += [highest("cpu_s_per_gb_read", of_sizes, is_figure=True), *of_sizes]
    found += [
        _cpu(f"{peer}_cpu_s_per_gb_read", rates, [f"{peer}_cpu_{order}" for order in ORDERS])
        for peer in PEERS
    ]
    names = [f"read_{order}_{label}" for order in ORDERS for label in labels]
    peers = [f"{peer}_beside_{order}" for order in ORDERS for peer in PEERS]
    return (*found, *measured(rates, names + peers))


def _cpu(key: str, rates: Rates, names: Sequence[str]) -> Series:
    """CPU seconds per GB of all orders together."""
    samples = tuple(chain.from_iterable(rates[name] for name in names))
    return Series(key=key, unit="s/GB", samples=samples)


PART = Part(figures=FIGURES, run=cold_reads)
