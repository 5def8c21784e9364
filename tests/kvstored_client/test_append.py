"""Appends and tails of the SDK, against a fake daemon."""

import pytest

from kvstored_client import (
    AppendItem,
    AppendReport,
    AppendResult,
    AsyncClient,
    Client,
    RegionStaleError,
    RequestInvalidError,
    SequenceConflictError,
    SnapshotGeometry,
)
from kvstored_client.errors import DaemonFaultError
from kvstored_client.region import Region
from kvstored_client.replies import append_report, unserved_report
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import sequence_pb2, store_pb2
from tests.kvstored_client.fake_daemon import FakeDaemon

KEY = b"k" * 32
ROWS = 3
ITEMS = [
    AppendItem(sequence="a", first_token=15, first_row=0, token_count=1, keys=[KEY]),
    AppendItem(sequence="b", first_token=2, first_row=1, token_count=2),
]


def snapshot(region: Region | None) -> Region:
    assert region is not None
    region.view[:] = bytes(number % 251 for number in range(region.byte_count))
    return region


def byte_count(layout: StateLayout) -> int:
    return SnapshotGeometry(layout, ROWS).byte_count


def test_one_call_carries_the_whole_batch(
    client: Client, daemon: FakeDaemon, layout: StateLayout
) -> None:
    region = snapshot(client.allocate(byte_count(layout)))
    report = client.append(layout, region, ROWS, ITEMS)
    assert report == AppendReport((AppendResult(16), AppendResult(4)))
    assert all(result.is_taken for result in report.results)
    assert daemon.requests[-1] == store_pb2.AppendRequest(
        layout_id=layout.layout_id,
        snapshot_offset=region.offset,
        row_count=ROWS,
        items=[
            store_pb2.AppendItem(sequence="a", first_token=15, token_count=1, keys=[KEY]),
            store_pb2.AppendItem(sequence="b", first_token=2, first_row=1, token_count=2),
        ],
    )
    assert daemon.snapshots == [bytes(region.view[: byte_count(layout)])]


async def test_the_same_for_tasks(
    async_client: AsyncClient, daemon: FakeDaemon, layout: StateLayout
) -> None:
    region = snapshot(await async_client.allocate(byte_count(layout)))
    report = await async_client.append(layout, region, ROWS, ITEMS)
    assert [result.length_tokens for result in report.results] == [16, 4]
    sequences = async_client.sequences
    created = await sequences.create("a", layout, keys=[KEY], ephemeral=True)
    assert created is not None
    assert (created.is_ephemeral, created.keys) == (True, (KEY,))
    flushed = await sequences.flush("a", KEY, expected_tokens=20)
    assert flushed is not None
    assert (flushed.tail_key, flushed.durable_tokens) == (KEY, 20)
    shorter = await sequences.truncate_tokens("a", 3)
    assert shorter is not None
    assert shorter.staged_tokens == 17


def test_a_dropped_row_is_a_value(client: Client, daemon: FakeDaemon, layout: StateLayout) -> None:
    daemon.append_reason = Reason.DRAM_FULL
    region = snapshot(client.allocate(byte_count(layout)))
    report = client.append(layout, region, ROWS, ITEMS)
    assert report.is_served
    assert {result.reason for result in report.results} == {Reason.DRAM_FULL}
    assert not any(result.is_taken for result in report.results)


def test_a_call_that_is_not_served_takes_nothing(
    client: Client, daemon: FakeDaemon, layout: StateLayout
) -> None:
    region = snapshot(client.allocate(byte_count(layout)))
    daemon.refusals["AppendRequest"] = Reason.LIMIT_EXCEEDED
    report = client.append(layout, region, ROWS, ITEMS)
    assert report == AppendReport((AppendResult(0, Reason.LIMIT_EXCEEDED),) * 2, is_served=False)
    assert client.counters["append_failed_LimitExceeded"] == 1


def test_an_append_without_an_answer_ends_the_session(
    client: Client, daemon: FakeDaemon, layout: StateLayout
) -> None:
    region = snapshot(client.allocate(byte_count(layout)))
    daemon.silent.add("AppendRequest")
    report = client.append(layout, region, ROWS, ITEMS)
    assert not report.is_served
    assert not any(result.is_taken for result in report.results)
    assert not region.is_current


def test_nothing_to_append_is_no_call(
    client: Client, daemon: FakeDaemon, layout: StateLayout
) -> None:
    region = snapshot(client.allocate(4096))
    before = len(daemon.requests)
    assert client.append(layout, region, ROWS, []) == AppendReport(())
    assert len(daemon.requests) == before


def test_a_snapshot_must_be_there_and_fit(strict_client: Client, layout: StateLayout) -> None:
    region = snapshot(strict_client.allocate(100))
    with pytest.raises(RequestInvalidError, match="of 3 rows has"):
        strict_client.append(layout, region, ROWS, ITEMS)
    with pytest.raises(RequestInvalidError, match="at least one row"):
        strict_client.append(layout, region, 0, ITEMS)
    region.release()
    with pytest.raises(RegionStaleError):
        strict_client.append(layout, region, 1, ITEMS)


def test_a_malformed_item_is_an_invalid_request(strict_client: Client, layout: StateLayout) -> None:
    region = snapshot(strict_client.allocate(byte_count(layout)))
    bad = AppendItem(sequence="a", first_token=-1, first_row=0, token_count=1)
    with pytest.raises(RequestInvalidError):
        strict_client.append(layout, region, ROWS, [bad])


def test_verbs_of_the_tail(
    client: Client, strict_client: Client, daemon: FakeDaemon, layout: StateLayout
) -> None:
    created = client.sequences.create("a", layout, keys=[KEY], ephemeral=True)
    assert created is not None
    assert (created.is_ephemeral, created.keys, created.is_stopped) == (True, (KEY,), False)
    daemon.sequences["a"].MergeFrom(
        sequence_pb2.Sequence(
            tail_key=KEY, durable_tail_tokens=2, tail_tokens=3, staged_tokens=19, stopped=True
        )
    )
    info = client.sequences.get("a")
    assert info is not None
    assert (info.tail_key, info.durable_tail_tokens, info.tail_tokens) == (KEY, 2, 3)
    assert (info.staged_tokens, info.durable_tokens, info.is_stopped) == (19, 0, True)
    shorter = client.sequences.truncate_tokens("a", 2)
    assert shorter is not None
    assert shorter.staged_tokens == 17
    flushed = client.sequences.flush("a", KEY, expected_tokens=17)
    assert flushed is not None
    assert flushed.durable_tokens == 17
    daemon.refusals["FlushSequenceRequest"] = Reason.SEQUENCE_CONFLICT
    assert client.sequences.flush("a", KEY, expected_tokens=16) is None
    with pytest.raises(SequenceConflictError):
        strict_client.sequences.flush("a", KEY, expected_tokens=16)


def test_replies_that_cannot_be_are_faults_of_the_daemon() -> None:
    with pytest.raises(DaemonFaultError, match="1 results for 2 items"):
        append_report(store_pb2.AppendReply(results=[store_pb2.AppendResult()]), 2)
    unknown = store_pb2.AppendReply(results=[store_pb2.AppendResult(reason=99)])  # type: ignore[arg-type]
    with pytest.raises(DaemonFaultError, match="outside the contract"):
        append_report(unknown, 1)
    assert not unserved_report(Reason.UNSPECIFIED, 1).results[0].is_taken
