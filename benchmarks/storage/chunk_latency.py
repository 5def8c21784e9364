"""One chunk at a time: from before the call until the wait has returned.

Every call of a round reads another chunk to another place, so that neither the chunk nor
its destination is in a cache because of the call before.
"""

from collections.abc import Callable
from itertools import chain

import numpy as np

from benchmarks.interleave import Alternative, Measured, Rounds
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.evidence import Tier, require_tier
from benchmarks.storage.space import device_bytes, dram_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import KIB, Workload, numbered_payload, size_label
from kvstored_client import Ack, NewChunk, Order

SLICE_BYTES = (8 * KIB, 32 * KIB, 256 * KIB)
"""With 32 layers: chunks of 256 KiB, 1 MiB and 8 MiB."""
FIGURE_SLICE_BYTES = 32 * KIB
"""A small model with grouped queries: 64 tokens are 1 MiB."""
FIGURES = ("get_warm_p50_ms",)


class _Gets:
    """Batches of calls that read all chunks of one workload, each alone, from one tier."""

    def __init__(
        self, bench: Bench, session: StoreSession, workload: Workload, name: str, tier: Tier
    ) -> None:
        self._bench = bench
        self._session = session
        self._workload = workload
        self._chunks: list[NewChunk] = workload.new_chunks("get")
        self._tier = tier
        self._batches: list[list[float]] = []
        self.name = name

    def run(self) -> Measured:
        """One batch; its median."""
        workload = self._workload
        numbers = list(range(workload.chunk_count))
        self._bench.generator.shuffle(numbers)
        batch: list[float] = []
        for number in numbers:
            timing = self._session.read(
                workload, self._chunks[number : number + 1], order=Order.HEAD_FIRST, first=number
            )
            require_tier(timing.report, workload.chunk_bytes, self._tier)
            batch.append(timing.duration_s * 1000)
        self._session.check_destination(workload.payload_bytes)
        self._batches.append(batch)
        return {self.name: float(np.percentile(batch, 50))}

    def calls(self) -> list[float]:
        """Milliseconds of every call but those of the first batch, which is not counted."""
        return list(chain.from_iterable(self._batches[1:]))


class _Misses:
    """Batches of calls that find nothing: what a get costs before it moves anything."""

    name = "get_miss"

    def __init__(self, session: StoreSession, workload: Workload) -> None:
        self._session = session
        self._workload = workload
        self._chunks = workload.new_chunks("nobody's")

    def run(self) -> Measured:
        """One batch; its median."""
        batch = [1000 * self._session.miss(self._workload, chunk) for chunk in self._chunks]
        return {self.name: float(np.percentile(batch, 50))}


def chunk_latency(bench: Bench) -> tuple[Series, ...]:
    """Median and 99th percentile of each size, warm and cold."""
    scale = bench.scale
    workloads = [
        Workload(
            chunk_count=scale.get_chunks,
            slice_bytes=size,
            layer_count=scale.get_layer_count,
        )
        for size in SLICE_BYTES
    ]
    payload_bytes = max(workload.payload_bytes for workload in workloads)
    payload = numbered_payload(payload_bytes, bench.settings.seed)
    with (
        bench.daemon(
            "gets",
            device_bytes=device_bytes(workloads, 2),
            dram_bytes=dram_bytes(workloads),
            arena_bytes=payload_bytes,
        ) as daemon,
        StoreSession(daemon, payload, workloads) as session,
    ):
        session.fill_arena()
        for workload in workloads:
            session.put(workload, workload.new_chunks("get"), ack=Ack.DURABLE)

        misses = _Misses(session, workloads[0])

        def gets(
            temperature: str, tier: Tier, rounds: Rounds, prepare: Callable[[], None]
        ) -> list[Series]:
            every = [
                _Gets(bench, session, workload, f"get_{temperature}_{label(workload)}", tier)
                for workload in workloads
            ]
            group = [Alternative(run=one.run, prepare=session.clear_destination) for one in every]
            if tier is Tier.DRAM:
                group.append(Alternative(run=misses.run))
            medians = bench.run(f"{temperature} gets", [group], rounds=rounds, prepare=prepare)
            result = [series for one in every for series in _series(one, medians[one.name])]
            if misses.name in medians:
                samples = medians[misses.name]
                result.append(Series(key=f"{misses.name}_p50_ms", unit="ms", samples=samples))
            return result

        # In this order: a restart empties DRAM.
        warm = gets("warm", Tier.DRAM, scale.rounds, lambda: None)
        cold = gets("cold", Tier.DEVICES, scale.slow_rounds, session.restart)
    figure = f"get_warm_{label(workloads[SLICE_BYTES.index(FIGURE_SLICE_BYTES)])}_p50_ms"
    (samples,) = (series.samples for series in warm if series.key == figure)
    return (Series(key=FIGURES[0], unit="ms", samples=samples, is_figure=True), *warm, *cold)


def label(workload: Workload) -> str:
    """The size of a chunk, as part of a key."""
    return size_label(workload.chunk_bytes)


def _series(gets: _Gets, medians: tuple[float, ...]) -> tuple[Series, ...]:
    """The medians of all batches, and the 99th percentile of all calls together."""
    calls = gets.calls()
    return (
        Series(key=f"{gets.name}_p50_ms", unit="ms", samples=medians),
        Series(key=f"{gets.name}_p99_ms", unit="ms", samples=(float(np.percentile(calls, 99)),)),
        Series(key=f"{gets.name}_calls", unit="", samples=(float(len(calls)),)),
    )


PART = Part(figures=FIGURES, run=chunk_latency)
