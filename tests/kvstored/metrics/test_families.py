"""Each number of a daemon has its name and labels."""

from collections.abc import Mapping

import pytest

from kvstored.metrics.families import OTHERS, families_of
from kvstored.metrics.readiness import Readiness
from tests.kvstored.metrics.snapshots import snapshot_of

Sample = tuple[str, tuple[tuple[str, str], ...]]


@pytest.fixture
def samples() -> Mapping[Sample, float]:
    families = families_of(Readiness.SERVING, snapshot_of(), version="1.2")
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("kvstored_build_info", {"version": "1.2"}, 1),
        ("kvstored_state", {"state": "serving"}, 1),
        ("kvstored_state", {"state": "draining"}, 0),
        ("kvstored_uptime_seconds", {}, 12.5),
        ("kvstored_epoch", {}, 3),
        ("kvstored_chunks", {"tier": "device"}, 9),
        ("kvstored_chunks", {"tier": "dram"}, 4),
        ("kvstored_sequences", {}, 2),
        ("kvstored_dram_capacity_bytes", {}, 64),
        ("kvstored_dram_used_bytes", {}, 32),
        ("kvstored_pinned_chunks", {}, 1),
        ("kvstored_waiting_requests", {}, 6),
        ("kvstored_index_failed", {}, 0),
        ("kvstored_scrub_progress_ratio", {}, 0.5),
        ("kvstored_scrub_end_timestamp_seconds", {}, 1.5),
        ("kvstored_sessions", {}, 5),
        ("kvstored_arenas_used_bytes", {}, 4096),
        ("kvstored_device_capacity_bytes", {"device": "/d0"}, 100),
        ("kvstored_device_used_bytes", {"device": "/d0"}, 40),
        ("kvstored_device_failed", {"device": "/d0"}, 0),
        (
            "kvstored_device_transferred_bytes_total",
            {"device": "/d0", "operation": "read"},
            7,
        ),
        (
            "kvstored_device_transferred_bytes_total",
            {"device": "/d0", "operation": "write"},
            8,
        ),
        ("kvstored_device_requests_total", {"device": "/d0", "operation": "flush"}, 3),
        ("kvstored_namespace_used_bytes", {"namespace": "team", "tier": "device"}, 50),
        ("kvstored_namespace_used_bytes", {"namespace": OTHERS, "tier": "dram"}, 1),
        ("kvstored_namespace_guaranteed_bytes", {"namespace": "team", "tier": "dram"}, 6),
        ("kvstored_namespace_limit_bytes", {"namespace": "team", "tier": "device"}, 70),
        ("kvstored_stored_chunks_total", {}, 11),
        ("kvstored_call_duration_seconds_bucket", {"verb": "Put", "le": "0.0005"}, 1),
        ("kvstored_call_duration_seconds_bucket", {"verb": "Put", "le": "0.001"}, 3),
        ("kvstored_call_duration_seconds_bucket", {"verb": "Put", "le": "10.0"}, 3),
        ("kvstored_call_duration_seconds_bucket", {"verb": "Put", "le": "+Inf"}, 7),
        ("kvstored_call_duration_seconds_sum", {"verb": "Put"}, 50.5),
        ("kvstored_refused_calls_total", {"verb": "Put"}, 3),
    ],
)
def test_numbers(
    samples: Mapping[Sample, float], name: str, labels: dict[str, str], value: float
) -> None:
    assert samples[name, tuple(labels.items())] == value


def test_limits_that_are_none_are_left_out(samples: Mapping[Sample, float]) -> None:
    limits = [labels for name, labels in samples if name == "kvstored_namespace_limit_bytes"]
    assert limits == [(("namespace", "team"), ("tier", "device"))]


def test_before_it_serves_only_the_state_is_known() -> None:
    families = families_of(Readiness.RECOVERING, None, version="1.2")
    assert [family.name for family in families] == ["kvstored_build", "kvstored_state"]
