import json

from kvstored.metrics.history import History
from kvstored.metrics.page_data import page_data
from kvstored.metrics.readiness import Readiness, ReadinessReport
from kvstored.metrics.snapshot import HotRow
from tests.kvstored.metrics.snapshots import snapshot_of

HOT = HotRow(namespace="team", name="chat", chunk_count=4, dram_chunk_count=1, reads=7.0)


def test_without_a_snapshot_only_the_state_is_known() -> None:
    report = ReadinessReport(Readiness.RECOVERING, ("wait",))
    assert page_data(report, None, History().series(), (), version="1") == {
        "state": "recovering",
        "reasons": ["wait"],
        "version": "1",
    }


def test_everything_is_json() -> None:
    history = History()
    history.add(0.0, snapshot_of())
    history.add(2.0, snapshot_of())
    data = page_data(
        ReadinessReport(Readiness.SERVING),
        snapshot_of(counters={"device_errors": 2, "quarantined_chunks": 0, "other": 9}),
        history.series(),
        (HOT,),
        version="1",
    )
    assert json.loads(json.dumps(data)) == data
    assert [one["name"] for one in data["namespaces"]] == ["team", "(others)"]
    assert data["failures"] == [
        {"name": "device_errors", "text": "transfers and flushes that failed", "count": 2}
    ]
    (device,) = data["devices"]
    assert (device["path"], device["read_bytes_per_s"]) == ("/d0", [0.0])
    assert data["hottest"] == [
        {"namespace": "team", "name": "chat", "chunk_count": 4, "dram_chunk_count": 1, "reads": 7.0}
    ]
    assert data["scrub"].keys() == {"progress", "ended_ms"}


def test_a_device_that_was_not_looked_at_before_has_no_rates() -> None:
    data = page_data(
        ReadinessReport(Readiness.SERVING), snapshot_of(), History().series(), (), version="1"
    )
    assert data["devices"][0]["read_bytes_per_s"] == []
