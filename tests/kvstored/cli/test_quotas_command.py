"""``kvstored quotas``, and quotas and expiry of a daemon that is configured so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstored.cli.quotas_command import report_of
from kvstored_client import (
    Ack,
    ChangeKind,
    Client,
    LayerState,
    NewChunk,
    Placement,
    StateKind,
    StateLayout,
)
from kvstored_protos.v1 import admin_pb2
from tests.support.daemon import MIB, DaemonProcess
from tests.support.waiting import wait_until

LAYOUT = StateLayout(
    model="quota", dtype="float32", layers=(LayerState(StateKind.KV, 8192),) * 4, chunk_tokens=16
)
"""Chunks of 512 KiB and a header."""
CHUNK_BYTES = MIB // 2 + 4096
DEVICE_CHUNKS = 6
TTL_S = 3.0


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[DaemonProcess]:
    quota = {
        "namespace": "default",
        "dram_guaranteed_bytes": "1MiB",
        "device_limit_bytes": DEVICE_CHUNKS * CHUNK_BYTES,
    }
    with DaemonProcess(
        tmp_path, overrides={"quotas": {"ttl_s": TTL_S, "namespaces": [quota]}}
    ) as daemon:
        yield daemon


def quotas(daemon: DaemonProcess) -> list[dict[str, Any]]:
    result = daemon.run_verb("quotas", "--json")
    assert result.returncode == 0, result.stderr
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return rows


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def put(client: Client, numbers: range) -> None:
    region = client.allocate(Placement.contiguous_bytes(LAYOUT, 1))
    assert region is not None
    for number in numbers:
        report = client.put(
            LAYOUT,
            [NewChunk(key=key(number), token_count=16)],
            Placement.contiguous(region, LAYOUT),
            ack=Ack.DURABLE,
        )
        assert report.stored_count == 1


def test_a_limited_daemon(limited: DaemonProcess) -> None:
    """It keeps the last chunks, shows them beside the limit, and frees them when nobody comes."""
    with Client(limited.socket_path, strict=True) as client:
        begin = client.changes()
        assert begin is not None
        put(client, range(2 * DEVICE_CHUNKS))
        own, others = quotas(limited)
        assert own["namespace"] == "default"
        assert own["device_used_bytes"] == DEVICE_CHUNKS * CHUNK_BYTES == own["device_limit_bytes"]
        assert (own["dram_guaranteed_bytes"], own["dram_limit_bytes"]) == (MIB, 0)
        assert (own["ttl_s"], others["ttl_s"]) == (TTL_S, TTL_S)
        assert (others["namespace"], others["device_used_bytes"]) == ("(others)", 0)
        last = [key(number) for number in range(DEVICE_CHUNKS, 2 * DEVICE_CHUNKS)]
        assert client.match(LAYOUT, last).chunk_count == DEVICE_CHUNKS
        wait_until(lambda: client.match(LAYOUT, last).chunk_count == 0)
        wait_until(lambda: quotas(limited)[0]["dram_used_bytes"] == 0)
        assert quotas(limited)[0]["device_used_bytes"] == 0
        heard = client.changes(epoch=begin.epoch, after_sequence=begin.last_sequence)
        assert heard is not None
        removed = [change.key for change in heard.changes if change.kind is ChangeKind.REMOVED]
        assert sorted(removed) == [key(number) for number in range(2 * DEVICE_CHUNKS)]


def test_without_quotas_all_are_others(shared_daemon: DaemonProcess) -> None:
    (others,) = quotas(shared_daemon)
    assert others["namespace"] == "(others)"
    assert (others["device_limit_bytes"], others["dram_limit_bytes"], others["ttl_s"]) == (0, 0, 0)


def test_people_read_none_where_there_is_no_limit() -> None:
    own = admin_pb2.NamespaceStats(name="team", dram_used_bytes=5, device_limit_bytes=7)
    stats = admin_pb2.StatsReply(namespaces=[own, admin_pb2.NamespaceStats()])
    report = report_of(stats, as_json=False)
    assert report.rows == [
        ("team", 5, 0, "none", 0, 0, 7, "none"),
        ("(others)", 0, 0, "none", 0, 0, "none", "none"),
    ]
