"""What the page at ``/`` shows, as JSON has it. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvstored.metrics.families import OTHERS
from kvstored.metrics.history import Series
from kvstored.metrics.readiness import ReadinessReport
from kvstored.metrics.snapshot import HotRow, Snapshot

FAILURES = {
    "device_errors": "transfers and flushes that failed",
    "quarantined_chunks": "damaged chunks, out of service",
    "suspected_chunks": "reads that did not match at first",
    "scrub_damaged_chunks": "damaged chunks that the scrub found",
    "scrub_lost_records": "damaged entries of the index",
    "put_rejected_chunks": "chunks without room in time",
    "promotions_dropped": "promotions that were given up",
}
"""Counters that should not grow, each with what it counts."""


def page_data(
    report: ReadinessReport,
    snapshot: Snapshot | None,
    series: Series,
    hottest: Sequence[HotRow],
    *,
    version: str,
) -> dict[str, Any]:
    """Everything on the page; without a snapshot only the state."""
    state = {
        "state": report.readiness.value,
        "reasons": list(report.reasons),
        "version": version,
    }
    if snapshot is None:
        return state
    stats = snapshot.stats
    return {
        **state,
        "epoch": stats.epoch,
        "uptime_s": snapshot.uptime_s,
        "usage": dict(snapshot.usage),
        "chunk_count": stats.chunk_count,
        "sequence_count": stats.sequence_count,
        "pinned_chunk_count": stats.pinned_chunk_count,
        "waiting_request_count": stats.waiting_request_count,
        "dram": {
            "used_bytes": stats.dram_used_bytes,
            "capacity_bytes": stats.dram_capacity_bytes,
            "chunk_count": stats.dram_chunk_count,
        },
        "devices": [
            {
                "path": one.path,
                "used_bytes": one.used_bytes,
                "capacity_bytes": one.capacity_bytes,
                "failed": one.failed,
                "read_bytes_per_s": list(series.read_bytes_per_s.get(one.path, ())),
                "written_bytes_per_s": list(series.written_bytes_per_s.get(one.path, ())),
            }
            for one in stats.devices
        ],
        "work": {
            "restored_chunks_per_s": list(series.restored_chunks_per_s),
            "stored_chunks_per_s": list(series.stored_chunks_per_s),
            "hit_share": list(series.hit_share),
        },
        "namespaces": [{**asdict(one), "name": one.name or OTHERS} for one in stats.namespaces],
        "hottest": [asdict(one) for one in hottest],
        "failures": [
            {"name": name, "text": text, "count": stats.counters[name]}
            for name, text in FAILURES.items()
            if stats.counters.get(name)
        ],
        "scrub": asdict(stats.scrub),
    }
