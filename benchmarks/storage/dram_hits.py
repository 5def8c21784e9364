"""Reads of chunks that were just put, beside one thread's copy of as many bytes."""

from benchmarks.interleave import Alternative, Measured
from benchmarks.memcpy import copy_gb_per_s, populated
from benchmarks.report import Series
from benchmarks.storage.bench import Bench, Part
from benchmarks.storage.evidence import Tier, require_tier
from benchmarks.storage.rates import measured, ratio
from benchmarks.storage.space import device_bytes, dram_bytes
from benchmarks.store_session import StoreSession
from benchmarks.workload import GB, KIB, numbered_payload
from kvstored_client import Ack, Order

FIGURES = ("dram_hit_vs_memcpy",)


def dram_hits(bench: Bench) -> tuple[Series, ...]:
    """The rates of hits and of the copy."""
    scale = bench.scale
    workload = scale.call_workload(256 * KIB)
    payload = numbered_payload(scale.call_bytes, bench.settings.seed)
    chunks = workload.new_chunks("warm")
    destination = populated(workload.payload_bytes)
    with (
        bench.daemon(
            "hits",
            device_bytes=device_bytes([workload], 2),
            dram_bytes=dram_bytes([workload]),
            arena_bytes=scale.call_bytes,
        ) as daemon,
        StoreSession(daemon, payload, [workload]) as session,
    ):
        session.fill_arena()
        session.put(workload, chunks, ack=Ack.DURABLE)

        def hit() -> Measured:
            timing = session.read(workload, chunks, order=Order.HEAD_FIRST)
            require_tier(timing.report, workload.payload_bytes, Tier.DRAM)
            session.check_destination(workload.payload_bytes)
            return {"dram_hit": workload.payload_bytes / timing.duration_s / GB}

        def peer() -> Measured:
            return {"memcpy": copy_gb_per_s(payload, destination)}

        group = (Alternative(run=hit, prepare=session.clear_destination), Alternative(run=peer))
        rates = bench.run("hits in DRAM", [group], rounds=scale.rounds)
    return (
        ratio("dram_hit_vs_memcpy", rates, "dram_hit", "memcpy", is_figure=True),
        *measured(rates, ("dram_hit", "memcpy")),
    )


PART = Part(figures=FIGURES, run=dram_hits)
