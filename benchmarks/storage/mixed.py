"""Cold reads of one client process while another puts, beside the same reads alone."""

import time
from contextlib import ExitStack

from benchmarks.benchmark import BenchmarkError
from benchmarks.interleave import Alternative, Measured
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.clients import client_workload, store
from benchmarks.storage.rates import measured, ratio
from benchmarks.storage.space import device_bytes, dram_bytes
from benchmarks.storage.timeline import Timeline
from benchmarks.storage.worker_process import (
    START_DELAY_S,
    WorkerProcess,
    connect,
    disconnect,
    read_together,
)
from benchmarks.workload import GB

FIGURES = ("reads_under_puts_vs_alone",)
PUT_AHEAD_S = 0.5
"""Puts run so long before the reads begin."""


class _Putter:
    """Lets a worker put for a while, each time under a new name."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._start_count = 0

    def start(self) -> None:
        """Puts from now on."""
        self._start_count += 1
        self._worker.ask(
            "put",
            name=f"put {self._start_count}",
            start=time.monotonic() + START_DELAY_S,
        )

    def stop(self) -> Timeline:
        """Ends the puts after the one in progress."""
        self._worker.ask("stop")
        timeline = self._worker.timeline()
        self._worker.reply()
        return timeline


def mixed(bench: Bench) -> tuple[Series, ...]:
    """The rates of reads alone, of reads and puts together, and of puts alone."""
    scale, seed = bench.scale, bench.settings.seed
    workload = client_workload(bench)
    names = [f"mixed {number}" for number in range(scale.mixed_sequences)]
    with ExitStack() as stack:
        daemon = stack.enter_context(
            bench.daemon(
                "mixed",
                # What is put lies beside what was put before and what is being deleted.
                device_bytes=device_bytes([workload] * (len(names) + 4), 2),
                dram_bytes=dram_bytes([workload] * 3),
                arena_bytes=workload.payload_bytes,
            )
        )
        store(daemon, workload, names, seed)
        workers = [stack.enter_context(WorkerProcess(workload, seed)) for _ in range(2)]
        reader, putter = workers[0], _Putter(workers[1])
        connect(workers, daemon.options.socket)

        def fresh() -> None:
            disconnect(workers)
            daemon.restart()
            connect(workers, daemon.options.socket)

        def alone() -> Measured:
            (reads,) = read_together([reader], [names])
            return {"reads_alone": reads.rate(reads.start, reads.end) / GB}

        def together() -> Measured:
            putter.start()
            time.sleep(START_DELAY_S + PUT_AHEAD_S)
            (reads,) = read_together([reader], [names])
            return under_puts(reads, putter.stop())

        def puts_alone() -> Measured:
            putter.start()
            time.sleep(START_DELAY_S + scale.put_alone_s)
            puts = putter.stop()
            return {"puts_alone": puts.rate(puts.start, puts.end) / GB}

        rates = bench.run(
            "reads under puts",
            [
                [
                    Alternative(run=alone, prepare=fresh),
                    Alternative(run=together, prepare=fresh),
                    Alternative(run=puts_alone),
                ]
            ],
            rounds=scale.slow_rounds,
        )
        disconnect(workers)
    key = FIGURES[0]
    return (
        ratio(key, rates, "reads_under_puts", "reads_alone", is_figure=True),
        ratio("puts_under_reads_vs_alone", rates, "puts_under_reads", "puts_alone"),
        *measured(rates, ("reads_alone", "reads_under_puts", "puts_alone", "puts_under_reads")),
    )


def under_puts(reads: Timeline, puts: Timeline) -> Measured:
    """GB/s of both while the reads ran; raises BenchmarkError unless the puts ran all the time."""
    if not puts.start <= reads.start <= reads.end <= puts.end:
        raise BenchmarkError("the puts did not run as long as the reads: this is another figure")
    return {
        "reads_under_puts": reads.rate(reads.start, reads.end) / GB,
        "puts_under_reads": puts.rate(reads.start, reads.end) / GB,
    }


PART = Part(figures=FIGURES, run=mixed)
