"""The rate of cold reads over the size of a slice, beside fio at the same time."""

from dataclasses import replace

from benchmarks import fio
from benchmarks.fio import FioOperation
from benchmarks.interleave import Alternative, Measured
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.evidence import Tier, require_tier
from benchmarks.storage.rates import measured, ratio
from benchmarks.storage.space import device_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import GB, MIB, Workload, numbered_payload, size_label
from kvstored_client import Ack, Order

ORDERS = {"layer_first": Order.LAYER_FIRST, "tail_first": Order.TAIL_FIRST}
CHUNK_BYTES_MAX = 32 * MIB
"""Large slices come in fewer layers, so that a chunk fits into a slab."""


def slice_curve(bench: Bench) -> tuple[Series, ...]:
    """The rates of both orders for each size of slice, and of fio beside each."""
    scale = bench.scale
    workloads = {
        size: Workload.of_payload(
            scale.curve_bytes,
            slice_bytes=size,
            layer_count=min(scale.layer_count, CHUNK_BYTES_MAX // size),
        )
        for size in scale.curve_slices
    }
    stored = [workload for workload in workloads.values() for _ in ORDERS]
    payload = numbered_payload(scale.curve_bytes, bench.settings.seed)
    job = replace(bench.fio_best(FioOperation.READ), byte_count=scale.curve_bytes)
    with (
        bench.daemon(
            "curve",
            device_bytes=device_bytes(stored, 2, scale.large_slab_bytes),
            dram_bytes=2 * scale.large_slab_bytes,
            arena_bytes=scale.curve_bytes,
            slab_bytes=scale.large_slab_bytes,
        ) as daemon,
        StoreSession(daemon, payload, tuple(workloads.values())) as session,
    ):
        session.fill_arena()
        for workload in workloads.values():
            for order in ORDERS:
                session.put(workload, workload.new_chunks(f"curve {order}"), ack=Ack.DURABLE)

        def peer(size: int) -> Alternative:
            def run() -> Measured:
                return {f"curve_fio_{size_label(size)}": fio.run_fio(job).gb_per_s}

            return Alternative(run=run)

        rates = bench.run(
            "curve over slices",
            [
                [*(_read(session, workload, order) for order in ORDERS), peer(size)]
                for size, workload in workloads.items()
            ],
            rounds=scale.slow_rounds,
            prepare=session.restart,
        )
    labels = [size_label(size) for size in scale.curve_slices]
    return (
        *(
            ratio(f"{name}_vs_fio", rates, name, f"curve_fio_{label}")
            for order in ORDERS
            for label in labels
            for name in [f"curve_{order}_{label}"]
        ),
        *measured(rates, [f"curve_{who}_{label}" for who in (*ORDERS, "fio") for label in labels]),
    )


def _read(session: StoreSession, workload: Workload, order: str) -> Alternative:
    chunks = workload.new_chunks(f"curve {order}")
    name = f"curve_{order}_{size_label(workload.slice_bytes)}"

    def read() -> Measured:
        timing = session.read(workload, chunks, order=ORDERS[order])
        require_tier(timing.report, workload.payload_bytes, Tier.DEVICES)
        session.check_destination(workload.payload_bytes)
        return {name: workload.payload_bytes / timing.duration_s / GB}

    return Alternative(run=read, prepare=session.clear_destination)


PART = Part(figures=(), run=slice_curve)
