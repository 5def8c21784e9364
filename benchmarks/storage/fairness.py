"""Small calls of one client beside others that make their largest ones without pause.

The same others with a daemon of their own are the peer: they take as much of the processors. What
is left between both is what the clients of one daemon do to each other.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from benchmarks.benchmark import BenchmarkError
from benchmarks.core_split import own_core
from benchmarks.interleave import Alternative, Measured
from benchmarks.kit.daemon_process import DaemonProcess
from benchmarks.kit.line_process import LineProcess
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.rates import highest, ratio
from benchmarks.workload import MIB
from kvstored_client import Client, LayerState, StateKind, StateLayout
from kvstored_protos.v1 import admin_pb2

KINDS = ("match", "pin", "put", "read")
"""The large calls; ``benchmarks.storage.greedy`` makes them."""
ARENA_BYTES = 4 * MIB
SETTLE_S = 0.2
"""From the first of the large calls until the small ones begin."""
READS_END_S = 10.0
"""Each has a deadline of one second."""
_LAYOUT = StateLayout(
    model="small", dtype="float32", layers=(LayerState(StateKind.HIDDEN, 64),), chunk_tokens=16
)
_TOKENS = range(16 * 16)


class GreedyProcess(LineProcess):
    """A child that runs ``benchmarks.storage.greedy`` on one daemon."""

    def __init__(self, daemon: DaemonProcess) -> None:
        command = [sys.executable, "-m", "benchmarks.storage.greedy"]
        super().__init__(command, name="a greedy client")
        self._ask("connect", socket=str(daemon.options.socket))

    def begin_calls(self, kind: str) -> None:
        """Makes calls of one kind from now on."""
        self._ask("begin", kinds=[kind])

    def end_calls(self) -> int:
        """Stops when the last calls are answered; how many were."""
        call_count: int = self._ask("end")
        return call_count

    def _ask(self, verb: str, **arguments: Any) -> Any:
        self.send({"verb": verb, "arguments": arguments})
        return self.reply()


def beside_calls(
    clients: Sequence[GreedyProcess], kind: str, measure: Callable[[], Measured], rate: str
) -> Measured:
    """What is measured while clients make calls of one kind, and how many a second under ``rate``.

    Their last calls are waited for and count.
    """
    start = time.monotonic()
    call_count = 0
    with ExitStack() as ends:

        def end(client: GreedyProcess) -> None:
            nonlocal call_count
            call_count += client.end_calls()

        for client in clients:
            client.begin_calls(kind)
            ends.callback(end, client)
        time.sleep(SETTLE_S)
        measured = measure()
    return {**measured, rate: call_count / (time.monotonic() - start)}


def fairness(
    bench: Bench, *, prefix: str, client_count: int, is_split: bool = False
) -> tuple[Series, ...]:
    """The 99th percentile of a match of 16 chunks for each kind of large call, and alone.

    Also how many of the large calls are answered in the same daemon as in one of their own.
    ``client_count`` clients make them; the names of what is measured begin with ``prefix``. With
    ``is_split`` all clients share one core and both daemons another one.
    """
    greedy, peer = f"{prefix}greedy", f"{prefix}beside"
    with ExitStack() as stack:
        split = stack.enter_context(own_core()) if is_split else None
        daemon, other = (
            stack.enter_context(
                bench.daemon(
                    name,
                    device_bytes=256 * MIB,
                    dram_bytes=256 * MIB,
                    arena_bytes=ARENA_BYTES,
                    split=split,
                )
            )
            for name in ("fairness", "fairness beside")
        )
        client, other_client = (
            stack.enter_context(Client(each.options.socket, arena_bytes=ARENA_BYTES, strict=True))
            for each in (daemon, other)
        )
        keys = client.prefix_keys(_LAYOUT, list(_TOKENS))

        def measure(name: str) -> Measured:
            end = time.monotonic() + bench.scale.small_calls_s
            calls: list[float] = []
            while not calls or time.monotonic() < end:
                start = time.perf_counter()
                client.match(_LAYOUT, keys)
                calls.append(1000 * (time.perf_counter() - start))
            return {
                f"{name}_p50": float(np.percentile(calls, 50)),
                f"{name}_p99": float(np.percentile(calls, 99)),
            }

        def beside(name: str, clients: Sequence[GreedyProcess], kind: str) -> Measured:
            return beside_calls(clients, kind, partial(measure, name), f"{name}_rate")

        with_us, with_other = (
            [stack.enter_context(GreedyProcess(each)) for _ in range(client_count)]
            for each in (daemon, other)
        )

        def quiet() -> None:
            for each in (client, other_client):
                _wait_for_reads(each)

        groups = [
            [
                Alternative(run=partial(beside, f"{greedy}_{kind}", with_us, kind), prepare=quiet),
                Alternative(run=partial(beside, f"{peer}_{kind}", with_other, kind), prepare=quiet),
            ]
            for kind in KINDS
        ]
        alone = [Alternative(run=lambda: measure(f"{prefix}small_call_alone"), prepare=quiet)]
        times = bench.run(f"{prefix}fairness", [alone, *groups], rounds=bench.scale.slow_rounds)
        if "read" in KINDS:
            _check_reads(client)
    return results(times, greedy=greedy, peer=peer)


def _wait_for_reads(client: Client) -> admin_pb2.StatsReply:
    """Until the large reads are over, which are answered before: others would pay for them.

    What a read has moved counts at its end.
    """
    deadline_s = time.monotonic() + READS_END_S
    while (stats := client.admin.stats()).reads_in_flight_count:
        if time.monotonic() > deadline_s:
            raise BenchmarkError("the large reads do not end")
        time.sleep(SETTLE_S)
    return stats


def _check_reads(client: Client) -> None:
    """Raises BenchmarkError where the large reads found nothing: they would show nothing."""
    stats = _wait_for_reads(client)
    if not stats.counters.get("dram_hit_chunks") and not stats.counters.get("nvme_hit_chunks"):
        raise BenchmarkError("the large reads found no chunk, so that they show nothing")


def results(times: dict[str, tuple[float, ...]], *, greedy: str, peer: str) -> tuple[Series, ...]:
    """The figure, its ratios, and what was measured."""
    ratios = [
        ratio(f"{greedy}_{kind}_p99_vs_beside", times, f"{greedy}_{kind}_p99", f"{peer}_{kind}_p99")
        for kind in KINDS
    ]
    rates = [
        ratio(
            f"{greedy}_{kind}_rate_vs_beside", times, f"{greedy}_{kind}_rate", f"{peer}_{kind}_rate"
        )
        for kind in KINDS
    ]
    return (
        highest(f"{greedy}_p99_vs_beside", ratios, is_figure=True),
        *ratios,
        *rates,
        *(
            Series(key=f"{name}_calls_per_s", unit="1/s", samples=samples)
            if name.endswith("_rate")
            else Series(key=f"{name}_ms", unit="ms", samples=samples)
            for name, samples in times.items()
        ),
    )


PART = Part(
    figures=("greedy_p99_vs_beside",),
    run=partial(fairness, prefix="", client_count=1),
)
PART_OF_TWO = Part(
    figures=("two_greedy_p99_vs_beside",),
    run=partial(fairness, prefix="two_", client_count=2),
)
PART_SPLIT = Part(
    figures=("split_greedy_p99_vs_beside",),
    run=partial(fairness, prefix="split_", client_count=1, is_split=True),
)
