"""The numbers of a daemon as Prometheus has them. Pure.

Names and units follow Prometheus' rules: base units, ``_total`` for what only grows.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from kvstored.call_times import BUCKETS_S, CallTimes
from kvstored.metrics.readiness import Readiness
from kvstored.metrics.snapshot import Snapshot
from kvstored.tiers.chunks.status import DeviceStatus, NamespaceStatus, StoreStats

OTHERS = "(others)"
"""The label of all namespaces without a quota."""
AT_ZERO = (
    *("device_errors", "evicted_chunks", "expired_chunks"),
    *("quarantined_chunks", "scrub_lost_records"),
)
"""Counters with alert rules. Without a 0 before it, a first event would be no increase."""
_MS_PER_S = 1000


def families_of(readiness: Readiness, snapshot: Snapshot | None, *, version: str) -> list[Metric]:
    """All families; without a snapshot only what is known without one."""
    families: list[Metric] = [
        InfoMetricFamily("kvstored_build", "The version that runs", {"version": version}),
        _states(readiness),
    ]
    if snapshot is not None:
        families += _store(snapshot.stats, snapshot.uptime_s)
        families += _usage(snapshot.usage)
        families += _devices(snapshot.stats.devices)
        families += _namespaces(snapshot.stats.namespaces)
        families += _counters(snapshot.stats.counters)
        families += _calls(snapshot.times)
    return families


def _states(readiness: Readiness) -> Metric:
    family = GaugeMetricFamily(
        "kvstored_state", "1 for the state that the daemon is in", labels=["state"]
    )
    for state in Readiness:
        family.add_metric([state.value], float(state is readiness))
    return family


def _store(stats: StoreStats, uptime_s: float) -> Iterator[Metric]:
    yield _gauge("kvstored_uptime_seconds", "Time since it began to serve", uptime_s)
    yield _gauge("kvstored_epoch", "Number of the daemon's start", stats.epoch)
    chunks = GaugeMetricFamily("kvstored_chunks", "Chunks in a tier", labels=["tier"])
    chunks.add_metric(["device"], stats.chunk_count)
    chunks.add_metric(["dram"], stats.dram_chunk_count)
    yield chunks
    yield _gauge("kvstored_sequences", "Sequences that have a name", stats.sequence_count)
    yield _gauge("kvstored_dram_capacity_bytes", "Size of the DRAM tier", stats.dram_capacity_bytes)
    yield _gauge("kvstored_dram_used_bytes", "What chunks take of it", stats.dram_used_bytes)
    yield _gauge(
        "kvstored_pinned_chunks",
        "Chunks whose extents may not be reused now",
        stats.pinned_chunk_count,
    )
    yield _gauge(
        "kvstored_waiting_requests",
        "Requests in the queues of engines",
        stats.waiting_request_count,
    )
    yield _gauge(
        "kvstored_index_failed",
        "1 where a write of the index has failed: nothing is stored until a restart",
        stats.index_failed,
    )
    yield _gauge(
        "kvstored_scrub_progress_ratio", "Part of the pass that is done", stats.scrub.progress
    )
    yield _gauge(
        "kvstored_scrub_end_timestamp_seconds",
        "When the last pass since the start ended; 0 before that",
        stats.scrub.ended_ms / _MS_PER_S,
    )


def _usage(usage: Mapping[str, int]) -> Iterator[Metric]:
    """What sessions hold, by name: a count loses its ``_count``, as Prometheus names gauges."""
    for name, value in usage.items():
        yield _gauge(
            f"kvstored_{_plural(name)}", f"{name.replace('_', ' ').capitalize()} now", value
        )


def _plural(name: str) -> str:
    return f"{name.removesuffix('_count')}s" if name.endswith("_count") else name


def _devices(devices: Iterable[DeviceStatus]) -> Iterator[Metric]:
    labels = ["device"]
    capacity = GaugeMetricFamily(
        "kvstored_device_capacity_bytes", "Size of a device", labels=labels
    )
    used = GaugeMetricFamily("kvstored_device_used_bytes", "What extents take of it", labels=labels)
    failed = GaugeMetricFamily("kvstored_device_failed", "1 after it failed stop", labels=labels)
    moved = CounterMetricFamily(
        "kvstored_device_transferred_bytes", "Bytes since the start", labels=["device", "operation"]
    )
    requests = CounterMetricFamily(
        "kvstored_device_requests", "Requests since the start", labels=["device", "operation"]
    )
    for one in devices:
        capacity.add_metric([one.path], one.capacity_bytes)
        used.add_metric([one.path], one.used_bytes)
        failed.add_metric([one.path], one.failed)
        moved.add_metric([one.path, "read"], one.read_bytes)
        moved.add_metric([one.path, "write"], one.written_bytes)
        requests.add_metric([one.path, "read"], one.read_requests)
        requests.add_metric([one.path, "write"], one.write_requests)
        requests.add_metric([one.path, "flush"], one.flush_requests)
    yield from (capacity, used, failed, moved, requests)


def _namespaces(namespaces: Iterable[NamespaceStatus]) -> Iterator[Metric]:
    """Limits and shares that are 0 are none, and are left out."""
    labels = ["namespace", "tier"]
    used = GaugeMetricFamily(
        "kvstored_namespace_used_bytes", "What a namespace takes of a tier", labels=labels
    )
    guaranteed = GaugeMetricFamily(
        "kvstored_namespace_guaranteed_bytes", "What nobody else takes from it", labels=labels
    )
    limit = GaugeMetricFamily(
        "kvstored_namespace_limit_bytes", "What it may take at most", labels=labels
    )
    for one in namespaces:
        name = one.name or OTHERS
        used.add_metric([name, "dram"], one.dram_used_bytes)
        used.add_metric([name, "device"], one.device_used_bytes)
        for family, tier, value in (
            (guaranteed, "dram", one.dram_guaranteed_bytes),
            (guaranteed, "device", one.device_guaranteed_bytes),
            (limit, "dram", one.dram_limit_bytes),
            (limit, "device", one.device_limit_bytes),
        ):
            if value:
                family.add_metric([name, tier], value)
    yield from (used, guaranteed, limit)


def _counters(counters: Mapping[str, int]) -> Iterator[Metric]:
    """Every counter of the store; docs/operations.md says what they mean."""
    for name, value in sorted({**dict.fromkeys(AT_ZERO, 0), **counters}.items()):
        yield CounterMetricFamily(
            f"kvstored_{name}",
            f"{name.replace('_', ' ').capitalize()} since the start",
            value=value,
        )


def _calls(times: Mapping[str, CallTimes]) -> Iterator[Metric]:
    durations = HistogramMetricFamily(
        "kvstored_call_duration_seconds", "From a call's arrival to its answer", labels=["verb"]
    )
    refused = CounterMetricFamily(
        "kvstored_refused_calls", "Calls that ended with an error", labels=["verb"]
    )
    bounds = [*map(str, BUCKETS_S), "+Inf"]
    for verb, one in sorted(times.items()):
        counts = accumulate(one.counts)
        durations.add_metric([verb], list(zip(bounds, counts, strict=True)), sum_value=one.sum_s)
        refused.add_metric([verb], one.refused_count)
    yield from (durations, refused)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))
