"""Reads with 1, 2 and 4 devices, every device limited to the same rate.

The limit is what makes devices of one disk independent: four of them together stay
below what the disk gives, which is measured beside them.
"""

from contextlib import ExitStack
from dataclasses import replace

from benchmarks import fio
from benchmarks.fio import FioOperation
from benchmarks.interleave import Alternative, Group, Measured
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.evidence import Tier, require_tier
from benchmarks.storage.rates import Rates, lowest, measured, ratio
from benchmarks.storage.space import SLAB_BYTES, device_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import GB, KIB, Workload, numbered_payload
from kvstored_client import Ack, Order

DEVICE_COUNTS = (1, 2, 4)
DEVICE_BYTES_PER_S = 100_000_000
SHORT_CHUNKS = 8
READS = {
    "tail_first": Order.TAIL_FIRST,
    "layer_first": Order.LAYER_FIRST,
    "short_tail_first": Order.TAIL_FIRST,
    "short_layer_first": Order.LAYER_FIRST,
}
FIGURES = ("devices4_tail_first_x", "devices4_layer_first_x", "devices4_short_sequence_x")


def device_scaling(bench: Bench) -> tuple[Series, ...]:
    """The rates of all reads on all numbers of devices."""
    scale = bench.scale
    long = Workload.of_payload(
        scale.scaling_bytes, slice_bytes=256 * KIB, layer_count=scale.layer_count
    )
    workloads = {
        name: replace(long, chunk_count=SHORT_CHUNKS) if name.startswith("short") else long
        for name in READS
    }
    arena_bytes = max(workload.payload_bytes for workload in workloads.values())
    payload = numbered_payload(arena_bytes, bench.settings.seed)
    disk_job = replace(bench.fio_best(FioOperation.READ), byte_count=scale.scaling_bytes)
    with ExitStack() as stack:
        sessions: dict[int, StoreSession] = {}
        for count in DEVICE_COUNTS:
            daemon = stack.enter_context(
                bench.daemon(
                    f"devices{count}",
                    device_bytes=device_bytes(workloads.values(), count),
                    dram_bytes=SLAB_BYTES,
                    arena_bytes=arena_bytes,
                    device_count=count,
                    device_bytes_per_s_max=DEVICE_BYTES_PER_S,
                )
            )
            session = StoreSession(daemon, payload, [long])
            sessions[count] = stack.enter_context(session)
            session.fill_arena()
            for name, workload in workloads.items():
                session.put(workload, workload.new_chunks(name), ack=Ack.DURABLE)

        def restart_all() -> None:
            for session in sessions.values():
                session.restart()

        def disk() -> Measured:
            return {"disk": fio.run_fio(disk_job).gb_per_s}

        groups: list[Group] = [
            [_read(sessions[count], workloads[name], name, count) for count in DEVICE_COUNTS]
            for name in READS
        ]
        rates = bench.run(
            "scaling over devices",
            [*groups, [Alternative(run=disk)]],
            rounds=scale.slow_rounds,
            prepare=restart_all,
        )
    return series(rates)


def _read(session: StoreSession, workload: Workload, name: str, count: int) -> Alternative:
    chunks = workload.new_chunks(name)

    def read() -> Measured:
        timing = session.read(workload, chunks, order=READS[name])
        require_tier(timing.report, workload.payload_bytes, Tier.DEVICES)
        session.check_destination(workload.payload_bytes)
        return {f"devices{count}_{name}": workload.payload_bytes / timing.duration_s / GB}

    return Alternative(run=read, prepare=session.clear_destination)


def series(rates: Rates) -> tuple[Series, ...]:
    """Rates with more devices over that with one; of a short sequence the worse order's."""
    found: list[Series] = []
    for count in DEVICE_COUNTS[1:]:
        of_reads = {
            name: ratio(
                f"devices{count}_{name}_x",
                rates,
                f"devices{count}_{name}",
                f"devices1_{name}",
                is_figure=f"devices{count}_{name}_x" in FIGURES,
            )
            for name in READS
        }
        shorts = [of_reads["short_tail_first"], of_reads["short_layer_first"]]
        key = f"devices{count}_short_sequence_x"
        found += [*of_reads.values(), lowest(key, shorts, is_figure=key in FIGURES)]
    limit = max(DEVICE_COUNTS) * DEVICE_BYTES_PER_S / GB
    headroom = Series(
        key="disk_over_devices4",
        unit="ratio",
        samples=tuple(rate / limit for rate in rates["disk"]),
    )
    names = [f"devices{count}_{name}" for name in READS for count in DEVICE_COUNTS]
    return (*found, headroom, *measured(rates, [*names, "disk"]))


PART = Part(figures=FIGURES, run=device_scaling)
