"""Reads that are given up half-way: overtaken by the engine's pointer, or cancelled.

Devices are limited to a low rate, so that half-way is a place that can be met. A chunk is
as large as one transfer: what is not in flight when the read is given up must not be read.
"""

import time
from collections.abc import Callable, Sequence

from benchmarks.benchmark import BenchmarkError
from benchmarks.interleave import Alternative, Measured
from benchmarks.report import Series, Summary
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.space import SLAB_BYTES, device_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import MIB, Workload, numbered_payload
from kvstored.format.geometry import HEADER_BYTES
from kvstored_client import Ack, NewChunk, Order, Read, SliceState

DEVICE_COUNT = 2
DEVICE_BYTES_PER_S = 100_000_000
REQUEST_BYTES = 2 * MIB
WINDOW_BYTES = 16 * MIB
LOOK_INTERVAL_S = 0.005
FIGURES = ("overshoot_over_window",)


def overtaken(bench: Bench) -> tuple[Series, ...]:
    """What both ways of giving up cost, as the worst of all repetitions."""
    layer_count = bench.scale.layer_count
    workload = Workload.of_payload(
        bench.scale.overtaken_bytes,
        slice_bytes=REQUEST_BYTES // layer_count,
        layer_count=layer_count,
    )
    payload = numbered_payload(workload.payload_bytes, bench.settings.seed)
    ways: dict[str, Callable[[Read, Workload], int]] = {"overtaken": overtake, "cancelled": cancel}
    with (
        bench.daemon(
            "overtaken",
            device_bytes=device_bytes([workload] * len(ways), DEVICE_COUNT),
            dram_bytes=SLAB_BYTES,
            arena_bytes=workload.payload_bytes,
            device_count=DEVICE_COUNT,
            device_bytes_per_s_max=DEVICE_BYTES_PER_S,
        ) as daemon,
        StoreSession(daemon, payload, [workload]) as session,
    ):
        session.fill_arena()
        for way in ways:
            session.put(workload, workload.new_chunks(way), ack=Ack.DURABLE)

        def alternative(way: str) -> Alternative:
            chunks = workload.new_chunks(way)

            def run() -> Measured:
                found = give_up(session, workload, chunks, ways[way])
                return {f"{way}_{name}": value for name, value in found.items()}

            return Alternative(run=run)

        found = bench.run(
            "overtaken reads",
            [[alternative(way) for way in ways]],
            rounds=bench.scale.slow_rounds,
            prepare=session.restart,
        )
    overshoot = Series(
        key="overshoot_over_window",
        unit="ratio",
        samples=tuple(sample for way in ways for sample in found[f"{way}_overshoot"]),
        summary=Summary.MOST,
        is_figure=True,
    )
    drained = Series(
        key="queue_drained_requests",
        unit="requests",
        samples=found["cancelled_drained_requests"],
        summary=Summary.MOST,
    )
    others = (Series(key=key, unit="ratio", samples=found[key]) for key in found)
    return (overshoot, drained, *others)


def give_up(
    session: StoreSession,
    workload: Workload,
    chunks: list[NewChunk],
    way: Callable[[Read, Workload], int],
) -> dict[str, float]:
    """Reads until half is there, gives up, and waits until the read is over.

    ``overshoot`` is what was read in vain over the window. ``drained_requests`` is the
    time until the read was over in transfers of one request at the rate of a device,
    ``drained_latencies`` in the time that a request takes while the window is full; in it
    an overtaken read still brings what is behind the pointer and was not there.
    ``rate`` is that of the half over the rates of all devices; ``disorder`` are the bytes
    that came before others nearer to the tail, over the window.
    """
    start = time.perf_counter()
    with session.start_read(
        workload, chunks, order=Order.TAIL_FIRST, window_bytes=WINDOW_BYTES
    ) as read:
        half_bytes = workload.payload_bytes // 2
        while (report := read.wait(LOOK_INTERVAL_S)).device_bytes < half_bytes:
            if report.finished:
                raise BenchmarkError("the read was over before half of it had come")
        given_up = time.perf_counter()
        wanted_bytes = way(read, workload)
        final = read.wait()
        drained_s = time.perf_counter() - given_up
    if all(final.resident):
        raise BenchmarkError("the read was complete before it could be given up")
    for number in (number for number, is_there in enumerate(final.resident) if is_there):
        place = number * workload.chunk_bytes
        session.check_destination(place + workload.chunk_bytes, place)
    bytes_per_s = DEVICE_COUNT * DEVICE_BYTES_PER_S
    return {
        "overshoot": (final.device_bytes - wanted_bytes) / WINDOW_BYTES,
        "drained_requests": drained_s * DEVICE_BYTES_PER_S / REQUEST_BYTES,
        "drained_latencies": drained_s * bytes_per_s / WINDOW_BYTES,
        "rate": report.device_bytes / (given_up - start) / bytes_per_s,
        "disorder": ahead_count(report.resident) * workload.chunk_bytes / WINDOW_BYTES,
    }


def ahead_count(resident: Sequence[bool]) -> int:
    """Chunks that are there although one nearer to the tail is not."""
    in_order = next((index for index, one in enumerate(reversed(resident)) if not one), None)
    return 0 if in_order is None else sum(resident) - in_order


def overtake(read: Read, workload: Workload) -> int:
    """Moves the engine's pointer to the first chunk of which anything is there.

    Returns the bytes of the chunks behind the pointer: all others are read in vain.
    """
    meeting = read.report().resident.index(True)
    while meeting and _is_touched(read, meeting - 1, workload.layer_count):
        meeting -= 1
    read.advance(meeting)
    return (workload.chunk_count - meeting) * (workload.chunk_bytes + HEADER_BYTES)


def _is_touched(read: Read, chunk: int, layer_count: int) -> bool:
    return any(read.state(chunk, layer) is not SliceState.PENDING for layer in (0, layer_count - 1))


def cancel(read: Read, workload: Workload) -> int:
    """Cancels; returns the bytes that were read before: what comes later is in vain."""
    _ = workload
    before_bytes = read.report().device_bytes
    read.cancel()
    return before_bytes


PART = Part(figures=FIGURES, run=overtaken)
