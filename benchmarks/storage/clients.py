"""Many client processes that read at once, beside one that reads as many bytes alone.

Every process has its own session, arena and chunks. Only the time counts in which all of
them read.
"""

from contextlib import ExitStack

from benchmarks.benchmark import BenchmarkError
from benchmarks.interleave import Alternative, Measured
from benchmarks.kit.daemon_process import DaemonProcess
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.rates import measured, ratio
from benchmarks.storage.space import SLAB_BYTES, device_bytes
from benchmarks.storage.timeline import Timeline, overlap
from benchmarks.storage.worker_process import WorkerProcess, connect, disconnect, read_together
from benchmarks.store_session import StoreSession
from benchmarks.workload import GB, KIB, Workload, numbered_payload
from kvstored_client import Ack

FIGURES = ("clients8_sum_vs_one", "clients8_slowest_vs_mean")


def clients(bench: Bench) -> tuple[Series, ...]:
    """The sum of all clients over one alone, and how even their shares are."""
    scale, seed = bench.scale, bench.settings.seed
    workload = client_workload(bench)
    names = [
        [f"client {client} {number}" for number in range(scale.client_sequences)]
        for client in range(scale.client_count)
    ]
    everything = [name for own in names for name in own]
    with ExitStack() as stack:
        daemon = stack.enter_context(
            bench.daemon(
                "clients",
                device_bytes=device_bytes([workload] * len(everything), 2),
                dram_bytes=SLAB_BYTES,
                arena_bytes=workload.payload_bytes,
            )
        )
        store(daemon, workload, everything, seed)
        workers = [stack.enter_context(WorkerProcess(workload, seed)) for _ in names]

        def fresh(taking_part: list[WorkerProcess]) -> None:
            disconnect(workers)
            daemon.restart()
            connect(taking_part, daemon.options.socket)

        def together() -> Measured:
            return shares(read_together(workers, names))

        def alone() -> Measured:
            (timeline,) = read_together(workers[:1], [everything])
            return {"clients1": timeline.rate(timeline.start, timeline.end) / GB}

        rates = bench.run(
            "clients",
            [
                (
                    Alternative(run=together, prepare=lambda: fresh(workers)),
                    Alternative(run=alone, prepare=lambda: fresh(workers[:1])),
                )
            ],
            rounds=scale.slow_rounds,
        )
        disconnect(workers)
    return (
        ratio("clients8_sum_vs_one", rates, "clients8", "clients1", is_figure=True),
        ratio(
            "clients8_slowest_vs_mean", rates, "clients8_slowest", "clients8_mean", is_figure=True
        ),
        *measured(rates, ("clients8", "clients8_slowest", "clients8_mean", "clients1")),
    )


def client_workload(bench: Bench) -> Workload:
    """What one client process reads at once."""
    return Workload.of_payload(
        bench.scale.sequence_bytes, slice_bytes=256 * KIB, layer_count=bench.scale.layer_count
    )


def store(daemon: DaemonProcess, workload: Workload, names: list[str], seed: int) -> None:
    """Puts the sequences that client processes read."""
    payload = numbered_payload(workload.payload_bytes, seed)
    with StoreSession(daemon, payload, [workload]) as session:
        session.fill_arena()
        for name in names:
            session.put(workload, workload.new_chunks(name), ack=Ack.DURABLE)


def shares(timelines: list[Timeline]) -> Measured:
    """GB/s of all clients together, of the slowest, and of the mean, while all read."""
    try:
        start, end = overlap(timelines)
    except ValueError as error:
        raise BenchmarkError(str(error)) from error
    rates = [timeline.rate(start, end) / GB for timeline in timelines]
    return {
        "clients8": sum(rates),
        "clients8_slowest": min(rates),
        "clients8_mean": sum(rates) / len(rates),
    }


PART = Part(figures=FIGURES, run=clients)
