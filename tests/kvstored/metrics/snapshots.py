"""What a daemon could say of itself."""

from typing import Any

from kvstored.call_times import BUCKETS_S, CallTimes
from kvstored.metrics.snapshot import Snapshot
from kvstored.tiers.chunks.status import DeviceStatus, NamespaceStatus, ScrubStatus, StoreStats

DEVICE = DeviceStatus(
    path="/d0",
    capacity_bytes=100,
    used_bytes=40,
    read_bytes=7,
    written_bytes=8,
    read_requests=1,
    write_requests=2,
    flush_requests=3,
    failed=False,
)
NAMESPACES = (
    NamespaceStatus(
        name="team",
        dram_used_bytes=5,
        dram_guaranteed_bytes=6,
        dram_limit_bytes=0,
        device_used_bytes=50,
        device_guaranteed_bytes=0,
        device_limit_bytes=70,
        ttl_s=0.0,
    ),
    NamespaceStatus(
        name="",
        dram_used_bytes=1,
        dram_guaranteed_bytes=0,
        dram_limit_bytes=0,
        device_used_bytes=2,
        device_guaranteed_bytes=0,
        device_limit_bytes=0,
        ttl_s=0.0,
    ),
)
TIMES = {"Put": CallTimes((1, 2, *(0,) * (len(BUCKETS_S) - 2), 4), sum_s=50.5, refused_count=3)}


def snapshot_of(**changes: Any) -> Snapshot:
    """A store with one device and one tenant; ``changes`` are of its stats."""
    stats: dict[str, Any] = {
        "epoch": 3,
        "chunk_count": 9,
        "sequence_count": 2,
        "dram_capacity_bytes": 64,
        "dram_used_bytes": 32,
        "dram_chunk_count": 4,
        "pinned_chunk_count": 1,
        "index_failed": False,
        "counters": {"stored_chunks": 11},
        "devices": (DEVICE,),
        "scrub": ScrubStatus(progress=0.5, ended_ms=1500),
        "waiting_request_count": 6,
        "namespaces": NAMESPACES,
    }
    return Snapshot(
        stats=StoreStats(**{**stats, **changes}),
        usage={"session_count": 5, "arenas_used_bytes": 4096},
        times=TIMES,
        uptime_s=12.5,
    )
